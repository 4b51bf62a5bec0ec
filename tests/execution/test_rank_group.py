"""Who a rank is under a plan that was revised, what that may not change, and which errors say that its group has changed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, runner
from airflow_training.execution.engine_settings import EngineSettings, UserFunctions
from airflow_training.execution.rank_group import (
    ElasticGroup,
    GroupChanged,
    PlanRevision,
    lost_peers,
    revision_of,
)

PLACE = {"number": 2, "rank": 1, "world": 3, "host": "a", "port": 70}
ENGINE = EngineSettings(model="m:f", steps=9, seed=5)
PLAN = ExecutionPlan(global_batch=24, micro_batch=2, dp=4)
USER = runner.UserTraining(
    engine=ENGINE,
    functions=UserFunctions(model=list, loss=max, optimizer=max, data=list),
    samples=[],
    global_batch=24,
)


def test_a_plan_of_the_start_has_no_revision():
    assert revision_of({"strategy": {}}) is None


def test_a_revision_says_rank_world_and_where_they_meet():
    assert revision_of({"revision": PLACE}) == PlanRevision(
        number=2, rank=1, world=3, host="a", port=70
    )


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"number": 0}, "revision.number"),
        ({"rank": -1}, "revision.rank"),
        ({"rank": 3}, "revision.rank"),
        ({"world": True}, "revision.world"),
        ({"port": "70"}, "revision.port"),
        ({"host": 7}, "revision.host"),
    ],
)
def test_a_revision_that_says_what_cannot_be_is_refused_at_its_key(change, field):
    with pytest.raises(InputError) as refused:
        revision_of({"revision": {**PLACE, **change}})
    assert [problem.field for problem in refused.value.problems] == [field]


def gloo() -> RuntimeError:
    return RuntimeError("[/p/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed")


def wrapped(cause: BaseException) -> RuntimeError:
    try:
        raise RuntimeError("stage 1 failed") from cause
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        pytest.param(gloo(), True, id="gloo"),
        pytest.param(dist.DistNetworkError("reset"), True, id="store"),
        pytest.param(wrapped(gloo()), True, id="inside-another"),
        pytest.param(GroupChanged("newer"), True, id="a-newer-revision"),
        pytest.param(RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False, id="model"),
        pytest.param(ValueError("gloo"), False, id="other-class"),
    ],
)
def test_an_error_of_the_group_is_told_from_one_of_what_is_trained(error, lost):
    assert lost_peers(error) is lost


def test_only_a_greater_number_is_a_revision_and_it_is_followed_once(tmp_path, monkeypatch):
    path = tmp_path / "plan.json"

    def write(number: int, rank: int) -> None:
        partial = Path(f"{path}.partial")
        place = {**PLACE, "number": number, "rank": rank}
        partial.write_text(json.dumps({"strategy": {}, "revision": place, "pad": "x" * number}))
        partial.replace(path)

    path.write_text("{}")
    for name, value in {
        "MASTER_ADDR": "h",
        "MASTER_PORT": "5",
        "RANK": "0",
        "WORLD_SIZE": "2",
    }.items():
        monkeypatch.setenv(name, value)
    group = ElasticGroup(path)
    assert not group.is_revised()
    write(1, rank=2)
    assert group.is_revised()
    group.follow()
    assert (group.revision, group.is_revised()) == (1, False)
    write(3, rank=0)
    group.follow()
    write(2, rank=1)
    assert not group.is_revised()
    assert group.revision == 3


def test_ranks_that_torchrun_brings_together_are_its_own(tmp_path, monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK"):
        monkeypatch.setenv(name, "1")
    assert ElasticGroup.of_environment(tmp_path / "plan.json") is None


def test_another_split_is_the_same_training():
    runner.check_same_training(USER, ENGINE, replace(PLAN, dp=3))


@pytest.mark.parametrize(
    ("engine", "plan", "field"),
    [
        (ENGINE, replace(PLAN, global_batch=48), "strategy.global_batch"),
        (replace(ENGINE, seed=6), PLAN, "engine"),
        (replace(ENGINE, steps=10), PLAN, "engine"),
    ],
)
def test_a_revision_that_trains_something_else_is_refused_at_its_field(engine, plan, field):
    with pytest.raises(InputError) as refused:
        runner.check_same_training(USER, engine, plan)
    assert [problem.field for problem in refused.value.problems] == [field]


def test_torchs_seed_is_that_of_the_engine_whatever_was_called_before(monkeypatch):
    seen: list[int] = []
    monkeypatch.setattr(runner, "distribute", lambda *_, **__: seen.append(torch.initial_seed()))
    torch.manual_seed(77)  # as a user's `data` may
    runner._distribute(USER, None, PLAN, None)
    assert seen == [5]

"""A plan that is revised while its ranks keep their processes: which may be, who is which rank, who is told, and when."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Delete, RevisePlan
from airflow_training.control.model import Event
from airflow_training.control.plan_revision import (
    place_in_plan,
    revise_ledger,
    revision_obstacle,
)
from airflow_training.control.replanning import replan_ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import FileTemplate, ResolvedJob
from airflow_training.documents.resolved_blocks import ResolvedPlan
from tests.builders import Bench, job, role
from tests.examples import examples

ENGINE = {"model": "train:example", "epochs": 3}
MASTER = InstanceKey("master", 0)


def plan(dp: int, *, env: tuple[str, ...] = ("DP_SIZE", "PLAN_FILE"), **more: Any) -> ResolvedPlan:
    strategy = {"global_batch": 24, "dp": dp, "zero": 0}
    document = {"id": f"p{dp}", "strategy": strategy, "engine": ENGINE, "applied": {"env": env}}
    return ResolvedPlan.from_document({**document, **more})


def ranks(dp: int, **fields: Any) -> ResolvedJob:
    """Return a job of a master and workers whose plan takes `dp` ranks."""
    workers = dp - 1
    env = {"DP_SIZE": str(dp), "PLAN_FILE": "plan.json", **fields.pop("env", {})}
    file = FileTemplate(path="plan/plan.json", content=f"{dp}")
    made = {"env": env, "files": (file,), "backoff_limit": 99, **fields.pop("role", {})}
    return job(
        role("master", 1, chief=True, **made),
        role("worker", workers, rank_offset=1, **made),
        scope=fields.pop("scope", "Instance"),
        plan=fields.pop("plan", plan(dp)),
        max_restarts=99,
        **fields,
    )


def revise(bench: Bench, new: ResolvedJob) -> None:
    """Do what the loop does in one transaction."""
    event = Event(at=bench.now, reason=reasons.REPLANNED)
    bench.ledger, events = revise_ledger(new, bench.ledger, event, generation=bench.generation)
    bench.job = new
    bench.events += events


def places(bench: Bench) -> Mapping[InstanceKey, int]:
    found = {key: place_in_plan(bench.job, bench.ledger, key) for key in bench.ledger.instances}
    return {key: each.rank for key, each in found.items() if each is not None}


# which may be -----------------------------------------------------------------------------------
@pytest.mark.parametrize("after", [3, 4, 5])
def test_another_number_of_replicas_can_be_followed(after):
    assert revision_obstacle(ranks(4), ranks(after), replaces_files=True) == ""


@pytest.mark.parametrize(
    ("new", "why"),
    [
        pytest.param({"plan": plan(3, engine={**ENGINE, "epochs": 4})}, "what is trained", id="engine"),
        pytest.param(
            {"plan": plan(3, strategy={"global_batch": 12, "dp": 3})},
            "samples of a step change from 24 to 12",
            id="global-batch",
        ),
        pytest.param(
            {"plan": plan(3, env=("NCCL_ALGO", "DP_SIZE", "PLAN_FILE")), "env": {"NCCL_ALGO": "Ring"}},
            "what instances of role master are started with",
            id="nccl",
        ),
        pytest.param(
            {"role": {"template": {"spec": {"containers": [{"image": "other"}]}}}},
            "what instances of role master are started with",
            id="image",
        ),
        pytest.param({"plan": plan(6)}, "6 ranks on 3 instances", id="several-ranks-in-an-instance"),
        pytest.param({"namespace": "elsewhere"}, "more of the job changes", id="another-place"),
        pytest.param(
            {"plan": ResolvedPlan.from_document({"id": "p", "strategy": {"dp": 3}})},
            "no engine in apply",
            id="no-engine",
        ),
    ],
)  # fmt: skip
def test_what_needs_new_processes_is_named(new, why):
    assert why in revision_obstacle(ranks(4), ranks(3, **new), replaces_files=True)


@pytest.mark.parametrize(
    ("fields", "replaces_files", "why"),
    [
        ({"scope": "Job"}, True, "restart.scope is Job"),
        ({}, False, "the runtime local cannot give instances another plan"),
        ({"elastic": True}, True, "forms its group itself"),
        ({"gang": "volcano"}, True, "a volcano gang is admitted for one size"),
    ],
)
def test_a_job_none_of_whose_plans_can_be_followed_says_so_before_any_search(
    fields, replaces_files, why
):
    made = ranks(4, **fields)
    assert why in revision_obstacle(made, made, replaces_files=replaces_files)


# what becomes of the run --------------------------------------------------------------------------
def test_who_survives_keeps_its_process_and_the_lost_one_is_charged_once():
    bench = Bench(ranks(4)).settle()
    survivors = {bench.uid("master"), bench.uid("worker", 0), bench.uid("worker", 2)}
    bench.end("worker", 1, exit_code=1).step()
    revise(bench, ranks(3))
    bench.settle()
    assert set(bench.objects) == survivors
    assert len(bench.ledger.job.restarts) == 1
    assert (bench.ledger.job.job_attempt, bench.ledger.job.plan_revision) == (0, 1)
    assert bench.state == "Running"
    assert places(bench) == {MASTER: 0, InstanceKey("worker", 0): 1, InstanceKey("worker", 2): 2}
    assert bench.actions(RevisePlan) == [("master", 0), ("worker", 0), ("worker", 2)]


def test_growth_is_charged_to_nobody_and_told_once_all_run():
    bench = Bench(ranks(3)).settle()
    survivors = set(bench.objects)
    revise(bench, ranks(4))
    bench.step()
    assert bench.actions(Create) == [("worker", 2)]
    bench.decide()
    assert bench.actions(RevisePlan) == [], "those that train go on meanwhile"
    bench.settle()
    assert survivors < set(bench.objects)
    assert len(bench.actions(RevisePlan)) == 4
    assert {each.number for each in bench.last.actions if isinstance(each, RevisePlan)} == {1}
    assert bench.ledger.job.restarts == ()


def test_where_rank_0_is_lost_another_gives_its_place_up():
    """All meet at its address: it comes again, and the job has as many as its plan takes."""
    bench = Bench(ranks(4)).settle()
    bench.end("master", exit_code=1).step()
    revise(bench, ranks(3))
    bench.settle()
    assert places(bench)[MASTER] == 0
    assert len(bench.objects) == 3
    assert bench.of("master").attempt == 1
    assert len(bench.ledger.job.restarts) == 1


def test_a_restart_of_all_under_a_revised_plan_has_them_all():
    bench = Bench(ranks(4)).settle()
    bench.end("worker", 0, exit_code=1).step()
    revise(bench, ranks(3))
    bench.settle()
    bench.request("pause").settle()
    bench.request("resume").settle()
    assert len(bench.objects) == 3
    assert sorted(places(bench).values()) == [0, 1, 2]
    assert bench.ledger.job.plan_revision == 1


def test_where_a_later_plan_has_several_ranks_in_each_instance_none_is_given_one():
    bench = Bench(ranks(4)).settle()
    revise(bench, ranks(3))
    bench.settle()
    event = Event(at=bench.now, reason=reasons.REPLANNED)
    bench.job = ranks(4, plan=plan(8))
    bench.ledger, _ = replan_ledger(bench.job, bench.ledger, event, generation=bench.generation)
    bench.settle()
    assert (len(bench.objects), bench.ledger.job.job_attempt) == (4, 1)
    assert places(bench) == {}, "torchrun tells them"


def test_a_plan_that_was_never_revised_is_told_to_nobody():
    assert Bench(ranks(4)).settle().actions(RevisePlan) == []


HAPPENS = st.sampled_from(["nothing", "nothing", "fails", "vanishes"])


@settings(deadline=None, max_examples=examples(100))
@given(before=st.integers(2, 5), sizes=st.lists(st.integers(2, 5), min_size=1, max_size=3), data=st.data())  # fmt: skip
def test_wherever_the_holder_dies_each_revision_is_one_and_reaches_all_in_their_processes(
    before, sizes, data
):
    """Before the transaction nothing is known of it, after it everything; who takes over tells again."""
    bench = Bench(ranks(before)).settle()
    told: dict[str, int] = dict.fromkeys(bench.objects, 0)

    def act() -> None:
        for each in bench.last.actions:
            if isinstance(each, RevisePlan):
                assert each.number == bench.ledger.job.plan_revision
                told[each.uid] = each.number
        bench.act()
        for uid in bench.objects:  # who begins finds the plan of then
            told.setdefault(uid, bench.ledger.job.plan_revision)

    failures = 0
    for number, size in enumerate(sizes, start=1):
        lost = set()
        for uid, each in list(bench.objects.items()):
            happens = data.draw(HAPPENS)
            if happens != "nothing" and each.state == "running":
                failures += 1
                lost.add(uid)
                if happens == "fails":
                    bench.end(each.role, each.index, exit_code=1)
                else:
                    del bench.objects[uid]
        running = set(bench.objects) - lost
        if data.draw(st.booleans()):
            bench.decide()
            if data.draw(st.booleans()):
                act()
        revise(bench, ranks(size))
        for _ in range(data.draw(st.integers(0, 4))):
            bench.generation += data.draw(st.integers(0, 1))  # another holder, the same store
            bench.decide()
            if data.draw(st.booleans()):
                act()
                bench.run_pending()
            indexes = [each.key for each in bench.objects.values()]
            assert len(indexes) == len(set(indexes)), "one live instance of each index"
        for _ in range(30):
            bench.later(1)
            bench.decide()
            act()
            bench.run_pending()
        kept = running & set(bench.objects)
        assert len(kept) >= min(len(running), size - 1), (
            "no more end than are too many, or yield to rank 0"
        )
        assert len(bench.objects) == size
        assert sorted(places(bench).values()) == [*range(size)]
        assert places(bench)[MASTER] == 0
        assert {told[uid] for uid in bench.objects} == {number}
        assert bench.ledger.job.plan_revision == number
        assert bench.ledger.job.job_attempt == 0
    assert len(bench.ledger.job.restarts) <= failures
    assert bench.actions(Delete) == []

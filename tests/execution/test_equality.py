"""Models trained by a split equal their serial training, written by hand; what cannot is refused by name."""

from __future__ import annotations

import pytest
import torch

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import call_ranks, compare_all, make, make_optimizer, train
from tests.execution.zoo import BATCH, ZOO, cross_entropy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

LIMITS = {"fp64": 1e-10, "fp32": 1e-5}


def plan(**split):
    return ExecutionPlan(**{"global_batch": BATCH, "micro_batch": 4, "precision": "fp64", **split})


def check(world, cases):
    outcomes = call_ranks(world, compare_all, cases)
    far = {
        f"{name} {case}": outcome
        for (name, case), outcome in zip(cases, outcomes[0], strict=True)
        if outcome.refused or not outcome.distance <= LIMITS[case.precision]
    }
    assert far == {}
    assert all(each == outcomes[0] for each in outcomes)


def test_two_ranks_train_as_one():
    check(
        2,
        [
            ("gpt", plan(dp=2)),
            ("resnet-batch", plan(dp=2)),
            ("cnn", plan(dp=2, zero=3, precision="fp32")),
            ("gpt", plan(pp=2)),
            ("u-net", plan(pp=2, schedule="gpipe")),
            ("gpt", plan(tp=2)),
            ("two-tower", plan(tp=2)),
            ("encoder", plan(tp=2, sequence_parallel=True)),
            ("torch-encoder", plan(tp=2)),
            ("gpt", plan(pp=2, virtual_stages=2)),
            ("frozen-norm", plan(dp=2)),
            ("padded", plan(tp=2)),
            ("frozen-norm", plan(pp=2)),
            ("spare", plan(dp=2, zero=1)),
            ("fused", plan(tp=2)),
            ("fused", plan(tp=2, recompute="selective")),
            ("cond", plan(dp=2)),
        ],
    )


def test_four_ranks_train_as_one_on_two_axes():
    check(
        4,
        [
            ("gpt", plan(tp=2, dp=2, micro_batch=2)),
            ("gpt", plan(pp=2, dp=2, zero=1, micro_batch=2)),
            ("gpt", plan(pp=2, tp=2)),
        ],
    )


def test_what_two_ranks_cannot_train_as_one_is_refused_by_name():
    cases = [
        ("spare", plan(dp=2)),
        ("spare", plan(pp=2)),
        ("resnet-batch", plan(dp=2, recompute="full")),
        ("resnet-batch", plan(pp=2, recompute="full")),
        ("mixed", plan(dp=2, micro_batch=1)),
        ("cond", plan(tp=2)),
        ("cond", plan(pp=2)),
        ("cond", plan(dp=2, recompute="selective")),
        ("scan", plan(dp=2, recompute="selective")),
        ("scan", plan(dp=2, recompute="full")),
    ]
    for outcomes in call_ranks(2, compare_all, cases):
        fields = [outcome.refused.partition(":")[0] for outcome in outcomes]
        assert fields[:2] == ["spare.weight", "spare.bias"]
        assert all(
            "recomputation would change them twice" in each.refused for each in outcomes[2:4]
        )
        assert outcomes[4].refused.startswith("module: Mixed gives other results")
        for outcome, axis in zip(outcomes[5:7], ("tp", "pp"), strict=True):
            assert outcome.refused.startswith(f"strategy.{axis}: cond: torch splits no model")
        for outcome, kind in zip(outcomes[7:], ("cond", "scan", "scan"), strict=True):
            told = f"strategy.recompute: {kind}: torch does not compute it again"
            assert outcome.refused.startswith(told)


def test_one_device_refuses_a_loop_that_it_would_compute_again():
    with pytest.raises(InputError, match="recompute: scan: torch does not compute it again"):
        train("scan", plan(recompute="full"))


def step_on_unlike_batches():
    training = distribute(
        make("mlp"),
        loss=cross_entropy,
        optimizer=make_optimizer("fp64"),
        example=ZOO["mlp"].batch(0),
        plan=plan(dp=2),
    )
    try:
        training.step(ZOO["mlp"].batch(torch.distributed.get_rank()))
    except InputError as error:
        return str(error)
    return ""


def test_ranks_that_are_given_unlike_batches_are_told():
    said = call_ranks(2, step_on_unlike_batches)
    assert all("rank 1 was given another batch than rank 0" in each for each in said)


TWO = {
    "dp": {"dp": 2},
    "zero 1": {"dp": 2, "zero": 1},
    "zero 2": {"dp": 2, "zero": 2},
    "zero 3": {"dp": 2, "zero": 3},
    "fp32": {"dp": 2, "precision": "fp32"},
    "gpipe": {"pp": 2, "schedule": "gpipe"},
    "1f1b": {"pp": 2},
    "zero-bubble": {"pp": 2, "schedule": "zero-bubble"},
    "full": {"pp": 2, "recompute": "full"},
    "tp": {"tp": 2},
    "selective": {"tp": 2, "recompute": "selective"},
    "sequence": {"tp": 2, "sequence_parallel": True},
    "interleaved": {"pp": 2, "virtual_stages": 2},
    "recompute": {"dp": 2, "recompute": "full"},
}
FOUR = {
    "dp": {"dp": 4, "micro_batch": 2},
    "zero 3": {"dp": 4, "zero": 3, "micro_batch": 2},
    "tp": {"tp": 4},
    "tp dp": {"tp": 2, "dp": 2, "micro_batch": 2},
    "tp zero 1": {"tp": 2, "dp": 2, "zero": 1, "micro_batch": 2},
    "tp zero 3": {"tp": 2, "dp": 2, "zero": 3, "micro_batch": 2},
    "pp dp": {"pp": 2, "dp": 2, "micro_batch": 2},
    "pp zero 2": {"pp": 2, "dp": 2, "zero": 2, "micro_batch": 2},
    "pp tp": {"pp": 2, "tp": 2},
}


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(ZOO))
@pytest.mark.parametrize(("world", "splits"), [(2, TWO), (4, FOUR)])
def test_the_whole_zoo_trains_as_one_or_is_refused(world, splits, name):
    cases = [(name, plan(**split)) for split in splits.values()]
    for split, outcome in zip(splits, call_ranks(world, compare_all, cases)[0], strict=True):
        if outcome.refused:
            print(name, world, split, outcome.refused)
            assert "strategy." in outcome.refused or outcome.refused.count(":") > 1
        else:
            limit = LIMITS["fp32" if split == "fp32" else "fp64"]
            assert outcome.distance == pytest.approx(0, abs=limit), (name, world, split)

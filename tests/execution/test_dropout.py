"""What modules draw at random is the same under any split, by the places of the samples; what is not is refused by name."""

from __future__ import annotations

import pytest

from airflow_training.execution import ExecutionPlan
from tests.execution.dropping import train, train_all
from tests.execution.ranks import call_ranks
from tests.execution.slowed import distance
from tests.execution.zoo import BATCH

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def plan(**split):
    return ExecutionPlan(**{"global_batch": BATCH, "micro_batch": 4, "precision": "fp64", **split})


def check(world, cases):
    """Hold what ranks trained against one device without a plan: one micro-batch, and no replica."""
    alone = {name: train(name, None) for name, _ in cases}
    outcomes = call_ranks(world, train_all, cases)
    far = {
        f"{name} {split}": each if isinstance(each, str) else distance(each, alone[name])
        for rank in outcomes
        for (name, split), each in zip(cases, rank, strict=True)
        if isinstance(each, str) or distance(each, alone[name]) > 1e-10
    }
    assert far == {}


def test_one_device_draws_the_same_in_any_micro_batches():
    for name in ("blocks", "encoder", "noisy"):
        whole, parts = train(name, None), train(name, plan())
        assert distance(parts, whole) <= 1e-10
        assert distance(train(name, plan(recompute="full")), whole) <= 1e-10


def test_steps_and_seeds_differ():
    once, again = train("blocks", None), train("blocks", None)
    assert not isinstance(once, str)
    assert once == again
    assert len(set(once["loss"])) == len(once["loss"])


def test_two_ranks_draw_as_one():
    check(
        2,
        [
            ("blocks", plan(dp=2)),
            ("encoder", plan(dp=2)),
            ("noisy", plan(dp=2)),
            ("encoder", plan(dp=2, zero=3, recompute="full")),
            ("blocks", plan(dp=2, replica_samples=(5, 3))),
            ("blocks", plan(pp=2)),
            ("blocks", plan(pp=2, virtual_stages=2)),
            ("encoder", plan(pp=2, recompute="full")),
            ("blocks", plan(tp=2)),
            ("encoder", plan(tp=2)),
        ],
    )


def test_four_ranks_draw_as_one_on_two_axes():
    check(
        4,
        [
            ("blocks", plan(dp=2, tp=2, micro_batch=2)),
            ("encoder", plan(dp=2, tp=2, micro_batch=2)),
            ("blocks", plan(dp=2, pp=2, micro_batch=2)),
            ("blocks", plan(tp=2, pp=2)),
        ],
    )


def test_what_is_not_known_by_position_is_refused_by_name():
    cases = [("across", plan(dp=2)), ("shuffling", plan(dp=2)), ("across", plan(tp=2))]
    for across, shuffling, whole in call_ranks(2, train_all, cases):
        assert across.startswith("drop: Dropout gives other results for a part of a batch")
        assert shuffling.startswith("module: Shuffling draws random numbers")
        assert isinstance(whole, dict)  # each rank has all samples

"""Replicas with unlike numbers of samples train as one device does, and take samples by their speed."""

from __future__ import annotations

import logging

import pytest
import torch

from airflow_training.execution import ExecutionPlan
from tests.execution.ranks import call_ranks
from tests.execution.slowed import distance, train, train_serially
from tests.execution.test_equality import check, plan

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

STEPS = 64
"""Eight looks at the speeds: one of them may fall into a moment when others use the machine."""


def test_two_replicas_of_unlike_size_train_as_one():
    uneven = {"dp": 2, "replica_samples": (5, 3)}
    check(
        2,
        [
            ("gpt", plan(**uneven)),
            ("resnet-batch", plan(**uneven)),
            ("gpt", plan(**uneven, zero=1)),
            ("gpt", plan(**uneven, zero=3)),
            ("cnn", plan(**{**uneven, "replica_samples": (1, 7)})),
            ("cnn", plan(**uneven, precision="fp32")),
        ],
    )


def test_four_ranks_in_replicas_of_unlike_size_train_as_one():
    uneven = {"dp": 2, "micro_batch": 2, "replica_samples": (1, 3)}
    check(
        4,
        [
            ("gpt", plan(**uneven, tp=2)),
            ("gpt", plan(**uneven, pp=2)),
            ("gpt", plan(**uneven, pp=2, zero=1)),
            ("mlp", plan(dp=4, micro_batch=2, replica_samples=(1, 4, 1, 2))),
        ],
    )


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.said.append(record.getMessage())


def train_slowed(split: ExecutionPlan, rebalance: float | None, steps: int = STEPS):
    lines = Lines()
    logging.getLogger("airflow_training.execution").addHandler(lines)
    # a pass takes long against all that it takes besides
    run = train(split, steps, rebalance=rebalance, seconds=0.003, factor=3.0, more=3)
    losses, weights = train_serially(split, len(run.losses))
    far = [abs(one - other) / other for one, other in zip(run.losses, losses, strict=True)]
    return run.samples, max(*far, distance(run.weights, weights)), lines.said


@pytest.mark.parametrize("world", [2, 4])
def test_a_slow_replica_takes_fewer_samples_and_the_result_stays(world):
    even = 16 // world
    split = ExecutionPlan(global_batch=32, micro_batch=even, dp=world, precision="fp64")
    outcomes = call_ranks(world, train_slowed, split, 0.2)
    for samples, far, _ in outcomes:
        assert far <= 1e-10
        assert samples == outcomes[0][0]  # agreed
        assert samples[0] == (even,) * world
        assert sum(samples[-1]) == 16
        assert samples[-1][-1] == min(samples[-1]) < even
    line = outcomes[0][2][-1]
    before, after = ", ".join([str(even)] * world), ", ".join(map(str, outcomes[0][0][-1]))
    assert f": samples of each replica in a pass: from {before} to {after}, as a pass took" in line
    assert "allowed are 20" in line
    assert all(said == [] for _, _, said in outcomes[1:])


def test_without_a_limit_or_above_it_samples_stay():
    split = ExecutionPlan(global_batch=32, micro_batch=8, dp=2, precision="fp64")
    for limit in (None, 5.0):
        for samples, far, said in call_ranks(2, train_slowed, split, limit, 9):
            assert set(samples) == {(8, 8)}
            assert far <= 1e-10
            assert said == []


@pytest.mark.parametrize(
    ("world", "beside", "why"), [(2, {"zero": 1}, "zero 1"), (4, {"tp": 2}, "(tp)")]
)
def test_where_speeds_cannot_be_followed_samples_stay_and_the_log_says_why(world, beside, why):
    split = ExecutionPlan(global_batch=32, micro_batch=8, dp=2, precision="fp64", **beside)
    for samples, far, said in call_ranks(world, train_slowed, split, 0.2, 9):
        assert set(samples) == {(8, 8)}
        assert far <= 1e-10
        assert len(said) == 1
        assert why in said[0]


def test_no_limit_below_nothing():
    from airflow_training.errors import InputError
    from airflow_training.execution import distribute

    with pytest.raises(InputError, match="rebalance"):
        distribute(
            torch.nn.Linear(2, 2),
            loss=torch.nn.functional.mse_loss,
            optimizer=torch.optim.SGD,
            example=(torch.zeros(2, 2), torch.zeros(2, 2)),
            rebalance=-0.1,
        )

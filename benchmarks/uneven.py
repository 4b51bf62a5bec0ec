"""What dealing out samples by speed gains where one process is slowed twofold: step times against even shares."""

from __future__ import annotations

import logging

from airflow_training.execution import ExecutionPlan
from benchmarks.report import figure, heading, median
from tests.execution.ranks import call_ranks
from tests.execution.slowed import Run, distance, train

STEPS = 40
LIMIT = 0.2
SECONDS = 0.004
"""Of a sample forward: long against what a step takes besides."""


def main() -> None:
    """Train with and without a limit, and print what the steps after the last change take."""
    heading("Uneven replicas")
    for world in (2, 4):
        plan = ExecutionPlan(global_batch=64, micro_batch=32 // world, dp=world, precision="fp64")
        even = call_ranks(world, _train, plan, None)[0]
        balanced = call_ranks(world, _train, plan, LIMIT)[0]
        seconds = [median(run.seconds[STEPS // 2 :]) for run in (even, balanced)]
        note = (
            f"{seconds[0]:.3f} s with even shares, {seconds[1]:.3f} s with {balanced.samples[-1]}"
        )
        name = f"step time, one of {world} processes slowed twofold, against even shares"
        figure(name, seconds[0] / seconds[1], "x", target="at least 1.3", note=note)
        far = distance(balanced.weights, even.weights)
        figure("difference of the weights in fp64", far, "", target="1e-10")


def _train(plan: ExecutionPlan, limit: float | None) -> Run:
    logging.basicConfig(level=logging.INFO)
    return train(plan, STEPS, rebalance=limit, seconds=SECONDS)


if __name__ == "__main__":
    main()

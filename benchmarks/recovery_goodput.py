"""How much of the time is training that stays, with failures, by the interval that `auto` chooses.

A simulation: time passes in steps and saves; failures come at random. What a save costs is what the benchmark
`recovery` measures for a model of 100 MB, or worse.
"""

from __future__ import annotations

import math
import random

from airflow_training.checkpoints.interval import (
    SaveCost,
    auto_seconds,
    daly_seconds,
    seconds_between_failures,
)
from benchmarks.report import figure, heading

COST = SaveCost(stall_seconds=0.05, slowed_seconds=0.05, total_seconds=2.0)


def simulate(
    *,
    failure_seconds: float,
    step_seconds: float,
    restart_seconds: float,
    days: float,
    seed: int,
    cost: SaveCost = COST,
) -> float:
    """Return the share of wall time that went into steps that were kept, 0 to 1.

    The interval is chosen anew after every save, from what the process knows then: its own starts and steps,
    and no cost before its first save.
    """
    dice = random.Random(seed)
    end = days * 86400
    now = 0.0
    kept = done = 0  # steps: committed, and made by this process
    failures = 0
    while now < end:
        fails_at = now + dice.expovariate(1 / failure_seconds)
        done, saved_at, known = kept, now, None
        uploading: tuple[float, int] | None = None
        while now < fails_at and now < end:
            now += step_seconds
            done += 1
            if uploading and now >= uploading[0]:
                kept, uploading, known = uploading[1], None, cost
            mean = seconds_between_failures(trained_seconds=done * step_seconds, failures=failures)
            if not uploading and now - saved_at >= auto_seconds(known, mean_seconds=mean):
                saved_at = now
                now += cost.stall_seconds + cost.slowed_seconds
                uploading = (saved_at + cost.total_seconds, done)
        if now < end:
            now = fails_at + restart_seconds
            failures += 1
    return kept * step_seconds / now


def goodput(
    *, interval_seconds: float, cost_seconds: float, mean_seconds: float, restart_seconds: float
) -> float:
    """Return the share of wall time that is training kept, 0 to 1, with failures at random moments.

    Exponential failures, saves that block, restarts that may fail too: Daly's complete cost function.
    """
    segment = (interval_seconds + cost_seconds) / mean_seconds
    wall = mean_seconds * math.exp(restart_seconds / mean_seconds) * math.expm1(segment)
    return interval_seconds / wall


def bound(*, failure_seconds: float, restart_seconds: float, cost: SaveCost = COST) -> float:
    """Return the most that any fixed interval keeps, by Daly's model."""
    both = cost.stall_seconds + cost.slowed_seconds
    return goodput(
        interval_seconds=daly_seconds(cost_seconds=both, mean_seconds=failure_seconds),
        cost_seconds=both,
        mean_seconds=failure_seconds,
        restart_seconds=restart_seconds,
    )


def main() -> None:
    heading("Goodput (simulated: a failure per 30 min, steps of 1 s, restarts of 60 s)")
    runs = [
        simulate(failure_seconds=1800, step_seconds=1, restart_seconds=60, days=14, seed=seed)
        for seed in range(10)
    ]
    best = bound(failure_seconds=1800, restart_seconds=60)
    figure(
        "time kept, mean of 10 runs of 14 days", 100 * sum(runs) / len(runs), "%", target=">= 95"
    )
    figure("time kept, worst run", 100 * min(runs), "%")
    figure("bound of any interval", 100 * best, "%", target="within 1 point")

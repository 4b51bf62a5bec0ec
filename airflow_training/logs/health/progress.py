"""How far each rank is, and when it will be done, with an interval. Pure: told the time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airflow_training.logs.health.ranks import by_rank, intervals
from airflow_training.logs.model import Series

__all__ = ["RankProgress", "progress"]

_RECENT = 200
"""Reports whose pace counts: the pace may change with the data, the batch size, the machine."""
_FEWEST = 5
_Z = 1.645
"""90 % of a normal distribution lie within so many deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankProgress:
    """Where one rank is. Times are UTC seconds since 1970; None: the log does not tell."""

    file: str
    role: str
    index: int
    rank: int | None
    step: float
    total_steps: float | None
    at: float | None
    """When it told the step."""
    step_seconds: float | None
    """Wall-clock time of a step, pauses for evaluation and checkpoints included."""
    done_at: float | None = None
    done_earliest: float | None = None
    done_latest: float | None = None
    """90 % of the ends lie between these two, as long as the pace stays."""


def progress(series: Sequence[Series]) -> list[RankProgress]:
    """Return the progress of every rank that tells its steps."""
    found = []
    for rank in by_rank(series):
        step = rank.last_step
        if step is None:
            continue
        seconds, steps, _ = intervals(rank.reports)
        at = rank.last_time
        file, role, index, number = rank.key
        known = RankProgress(
            file=file,
            role=role,
            index=index,
            rank=number,
            step=step,
            total_steps=rank.total_steps,
            at=at,
            step_seconds=None,
        )
        found.append(_with_end(known, seconds[-_RECENT:], steps[-_RECENT:]))
    return found


def _with_end(known: RankProgress, seconds: np.ndarray, steps: np.ndarray) -> RankProgress:
    import dataclasses

    if len(seconds) < _FEWEST or steps.sum() <= 0:
        return known
    pace = float(seconds.sum() / steps.sum())
    known = dataclasses.replace(known, step_seconds=pace)
    if known.total_steps is None or known.at is None:
        return known
    left = max(0.0, known.total_steps - known.step)
    # seconds of a step vary between reports; the mean pace itself is known only so well
    variance = float(np.mean((seconds - pace * steps) ** 2 / steps))
    error = float(np.sqrt(variance * left + variance * left**2 / steps.sum()))
    done = known.at + left * pace
    return dataclasses.replace(
        known,
        done_at=done,
        done_earliest=max(known.at, done - _Z * error),
        done_latest=done + _Z * error,
    )

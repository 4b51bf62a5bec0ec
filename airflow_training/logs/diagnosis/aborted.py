"""What a launcher prints once one of its processes has failed: what others still train is no life after it. Pure."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

from airflow_training.logs.diagnosis.markers import ELASTIC, RESTARTED, RESUMED, STARTED
from airflow_training.logs.model import Hit

__all__ = ["without_last_breaths"]

_ENDS_ALL = frozenset(
    {ELASTIC}
    | {
        f"unknown/{name}"
        for name in (
            "closing",
            "deepspeed-launch",
            "elastic-child",
            "elastic-failed",
            "horovod",
            "mpi",
            "paddle-launch",
            "spawn",
            "srun",
        )
    }
)
"""Signatures by which a launcher says that a process of its has failed, and that it ends the others."""
_MOST_BREATHS = 30
"""Reports after the last such line: who goes on for longer is ended by nobody."""
_BEGIN_AGAIN = frozenset({RESTARTED, RESUMED, STARTED})


def without_last_breaths(
    points: Collection[tuple[int, float]], hits: Iterable[Hit]
) -> Collection[tuple[int, float]]:
    """Leave out the reports that other ranks still made until their launcher had ended them.

    `points`: (line, step). Where training began again below that, be it in another run of the same log, all of it counts.
    """
    hits = list(hits)
    told = [hit.line for hit in hits if hit.signature in _ENDS_ALL]
    if not told or any(h.line > min(told) and h.signature in _BEGIN_AGAIN for h in hits):
        return points
    if len({line for line, _ in points if line > max(told)}) > _MOST_BREATHS:
        return points
    said = min(told)
    before = [step for line, step in points if line < said and not math.isnan(step)]
    after = [step for line, step in points if line > said]
    goes_on = all(not math.isnan(step) and step >= max(before, default=0) for step in after)
    return [point for point in points if point[0] < said] if goes_on else points

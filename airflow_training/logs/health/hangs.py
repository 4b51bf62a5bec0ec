"""Ranks that went silent. Pure: told until when nothing more came."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import numpy as np

from airflow_training.logs.health.ranks import Rank, finding_at, intervals
from airflow_training.logs.model import Finding

__all__ = ["hangs"]

_SHORTEST_SECONDS = 30.0
_FACTOR = 5.0
"""Times the p95 of the time between two reports."""
_LONGEST_PAUSE_FACTOR = 2.0
"""Times the longest pause the rank has made and come back from: evaluation and checkpoints recur."""
_PAUSE_SECONDS = 600.0
"""What a pause that the log announces may take."""
_FEWEST = 8
_ANNOUNCED = re.compile(
    r"evaluat|validat|checkpoint|saving|compil|predict|generat|testing|warm", re.IGNORECASE
)


def hangs(
    ranks: Sequence[Rank],
    *,
    until: Mapping[str, float],
    last_lines: Mapping[str, Sequence[str]],
) -> list[Finding]:
    """Return a finding for each rank without progress for max(30 s, 5 times its p95).

    `until`: file -> now, for a log that is live, or when its process ended; other files are not
    judged. `last_lines`: file -> what was printed last; it may announce a pause.
    """
    found = []
    for rank in ranks:
        end, last = until.get(rank.key[0]), rank.last_time
        reports = rank.reports
        if end is None or last is None or reports is None or _finished(rank):
            continue
        seconds, *_ = intervals(reports)
        if len(seconds) < _FEWEST:
            continue
        limit = max(
            _SHORTEST_SECONDS,
            _FACTOR * float(np.percentile(seconds, 95)),
            _LONGEST_PAUSE_FACTOR * float(seconds.max()),
        )
        said = last_lines.get(rank.key[0], ())
        if any(_ANNOUNCED.search(line) for line in said[-3:]):
            limit = max(limit, _PAUSE_SECONDS)
        silent = end - last
        if silent > limit:
            message = (
                f"{rank.name} has made no progress for {silent:.0f} s;"
                f" it used to report every {np.median(seconds):.3g} s"
            )
            at = len(reports.values) - 1
            found.append(finding_at(reports, at, kind="hang", message=message, severity="error"))
    return found


def _finished(rank: Rank) -> bool:
    total, step = rank.total_steps, rank.last_step
    return total is not None and step is not None and step >= total

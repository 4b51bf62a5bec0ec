"""Is a run healthy? Pure functions over the series of its logs; none reads a file or asks for the time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.logs.model import Finding, Series

__all__ = ["assess"]

_ORDER = {"error": 0, "warning": 1, "info": 2}


def assess(
    series: Sequence[Series],
    *,
    until: Mapping[str, float] | None = None,
    last_lines: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Finding, ...]:
    """Findings for a person, the worst first, then by time.

    `until`: file -> now, for a log that is live, or when its process ended: only these can hang.
    `last_lines`: file -> its last lines, which may announce a pause (`FileScan.tail`).
    """
    from airflow_training.logs.health.hangs import hangs
    from airflow_training.logs.health.losses import not_finite, plateaus, spikes
    from airflow_training.logs.health.ranks import by_rank
    from airflow_training.logs.health.stragglers import stragglers
    from airflow_training.logs.health.throughput import drops, memory_growth
    from airflow_training.logs.health.trends import rising_losses, unchanged_accuracies

    ranks = by_rank(series)
    found = [
        *not_finite(ranks),
        *hangs(ranks, until=until or {}, last_lines=last_lines or {}),
        *stragglers(ranks),
        *spikes(ranks),
        *drops(ranks),
        *memory_growth(ranks),
        *rising_losses(ranks),
        *plateaus(ranks),
        *unchanged_accuracies(ranks),
    ]
    return tuple(sorted(found, key=lambda each: (_ORDER[each.severity], each.time or 0.0)))

"""The series of a run rank by rank: when each one reported which step, and how long its steps take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from airflow_training.logs.model import Finding, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Bools, Floats, Integers

__all__ = ["Key", "Rank", "by_rank", "finding_at", "intervals", "series_of"]

Key = tuple[str, str, int, int | None]
"""File, role, index, rank."""

_ASIDE = ("eval_", "test_")
"""Metrics with a pace of their own: evaluation, which is no training step."""
_COUNTERS = frozenset({"step", "total_steps", "epoch", "consumed_samples"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rank:
    """Everything one rank printed about itself."""

    key: Key
    metrics: Mapping[str, Series] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Return how people call it."""
        file, role, index, rank = self.key
        where = f"{role}-{index}" if role else file
        if rank is None:
            return where
        return f"rank {rank} ({role}-{index})" if role else f"rank {rank}"

    @property
    def reports(self) -> Series | None:
        """Return the training metric with the most points that have step and time."""
        best, most = None, 1
        for name, series in self.metrics.items():
            if name.startswith(_ASIDE) or name in _COUNTERS - {"step"}:
                continue
            told = int(np.count_nonzero(_dated(series)))
            if told > most:
                best, most = series, told
        return best

    @property
    def last_time(self) -> float | None:
        """Return when it last printed any metric."""
        times = [float(np.nanmax(s.times)) for s in self.metrics.values() if _any(s.times)]
        return max(times, default=None)

    @property
    def last_step(self) -> float | None:
        """Return the step it told last."""
        told = [
            s.steps[np.isfinite(s.steps)] for n, s in self.metrics.items() if n not in _COUNTERS
        ]
        told += [self.metrics["step"].values] if "step" in self.metrics else []
        return max((float(each[-1]) for each in told if len(each)), default=None)

    @property
    def total_steps(self) -> float | None:
        """Return how many steps it will make, where it says so."""
        said = self.metrics.get("total_steps")
        return None if said is None or not len(said.values) else float(said.values[-1])


def intervals(reports: Series | None) -> tuple[Floats, Floats, Integers]:
    """Return seconds and steps between each two reports that follow each other, and where the later one stands.

    What is printed after a restart from a checkpoint, at an earlier step, starts anew.
    """
    if reports is None:
        return np.empty(0), np.empty(0), np.empty(0, dtype=np.int64)
    told = np.flatnonzero(_dated(reports))
    seconds, steps = np.diff(reports.times[told]), np.diff(reports.steps[told])
    forward = (steps > 0) & (seconds >= 0)
    return seconds[forward], steps[forward], told[1:][forward]


def _dated(series: Series) -> Bools:
    """Return which points have step and time."""
    return np.isfinite(series.steps) & np.isfinite(series.times)


def series_of(ranks: Iterable[Rank], *metrics: str) -> Iterator[Series]:
    """Yield the series of these metrics, rank by rank."""
    for rank in ranks:
        yield from (rank.metrics[name] for name in metrics if name in rank.metrics)


def by_rank(series: Sequence[Series]) -> list[Rank]:
    """Return the ranks in their order; of one metric that is there twice, the longer series counts."""
    found: dict[Key, dict[str, Series]] = {}
    for each in series:
        if not len(each.values):
            continue
        known = found.setdefault((each.file, each.role, each.index, each.rank), {})
        if each.metric not in known or len(known[each.metric].values) < len(each.values):
            known[each.metric] = each
    ordered = sorted(found, key=lambda key: (key[1:3], -1 if key[3] is None else key[3], key[0]))
    return [Rank(key=key, metrics=found[key]) for key in ordered]


def finding_at(
    series: Series, at: int, *, kind: str, message: str, severity: str = "warning"
) -> Finding:
    """Return a finding at one point of a series."""
    step, time = float(series.steps[at]), float(series.times[at])
    line, offset = int(series.lines[at]), int(series.offsets[at])
    return Finding(
        kind=kind,
        message=message,
        metric=series.metric,
        role=series.role,
        index=series.index,
        rank=series.rank,
        step=step if np.isfinite(step) else None,
        time=time if np.isfinite(time) else None,
        file=series.file,
        line=line if line >= 0 else None,
        offset=offset if offset >= 0 else None,
        severity=severity,
    )


def _any(values: Floats) -> bool:
    return bool(np.isfinite(values).any())

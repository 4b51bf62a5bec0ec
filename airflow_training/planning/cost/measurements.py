"""What runs measured, put in the place of what was worked out. Pure: measurements come as plain data."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any

from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import BreakdownLine, Estimate, Workload
from airflow_training.planning.view.serial import to_json
from airflow_training.planning.view.strategy import Strategy

__all__ = ["MeasuredStep", "measured_estimate", "steps_of", "subject"]

_REPEATS = 0.03
"""Share by which equal runs differ from one to the next; what a measured step is known by."""
_NEWEST = 5
"""Runs of a strategy that count: scripts and machines change."""
_NO_MATTER = (
    "count",
    "price_per_device_hour",
    "spot_price_per_device_hour",
    "spot_restarts_per_device_hour",
)
"""What of a group of nodes does not change how long a step takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """What runs of one strategy took."""

    strategy: Strategy
    step_seconds: float
    memory_bytes: float | None = None
    """Peak of the fullest device; None: nobody measured it."""
    runs: int = 1


def subject(workload: Workload, cluster: ClusterView) -> str:
    """Key of a measured step: the view, the runtime and the kinds of nodes.

    Not how many nodes there are or what they cost: a run measures for the cluster that lost one, too.
    """
    return _digest(
        {
            "view": to_json(workload.view),
            "runtime": workload.runtime,
            "nodes": _kinds(cluster),
            "tiers": [asdict(tier) for tier in cluster.tiers],
            "links": sorted((pair, asdict(link)) for pair, link in cluster.links.items()),
        }
    )


def _kinds(cluster: ClusterView) -> list[dict[str, Any]]:
    # the only kind of node needs no name; of several, strategies say which they mean
    unnamed = ("name",) if len(cluster.groups) == 1 else ()
    return [
        {key: value for key, value in asdict(group).items() if key not in (*_NO_MATTER, *unnamed)}
        for group in cluster.groups
    ]


def _digest(document: Any) -> str:
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:32]


def steps_of(found: Iterable[MeasuredStep]) -> list[MeasuredStep]:
    """Return one step for each strategy: the median of its newest runs. `found`: the newest first."""
    by_strategy: dict[Strategy, list[MeasuredStep]] = defaultdict(list)
    for each in found:
        by_strategy[each.strategy].append(each)
    return [_median(runs[:_NEWEST]) for runs in by_strategy.values()]


def _median(runs: Sequence[MeasuredStep]) -> MeasuredStep:
    peaks = [run.memory_bytes for run in runs if run.memory_bytes is not None]
    return MeasuredStep(
        strategy=runs[0].strategy,
        step_seconds=median(run.step_seconds for run in runs),
        memory_bytes=max(peaks, default=None),
        runs=sum(run.runs for run in runs),
    )


def measured_estimate(estimate: Estimate, found: MeasuredStep) -> Estimate:
    """Return the estimate with the measured step, and where it was measured the memory.

    What was measured is a whole; its parts keep the proportions that they were worked out in. Whether
    it fits stays what the model says: that has a margin, and a peak that was seen has none.
    """
    scale = found.step_seconds / estimate.step_seconds
    price = estimate.price_per_step
    memory, peak = estimate.memory, estimate.memory_bytes
    if found.memory_bytes is not None:
        memory = _scaled(memory, found.memory_bytes / peak)
        peak = found.memory_bytes
    return replace(
        estimate,
        step_seconds=found.step_seconds,
        p10=found.step_seconds * (1.0 - _REPEATS),
        p90=found.step_seconds * (1.0 + _REPEATS),
        time=_scaled(estimate.time, scale),
        memory=memory,
        memory_bytes=peak,
        price_per_step=None if price is None else price * scale,
    )


def _scaled(parts: Sequence[BreakdownLine], scale: float) -> list[BreakdownLine]:
    return [replace(part, value=part.value * scale, origin="measured") for part in parts]

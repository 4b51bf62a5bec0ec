"""What instances last told, taken together: when each was heard from, how fast it is, how far the run is. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from pydantic import BaseModel

from airflow_training.control.data_readings import DataReading, rate_of
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, JobState
from airflow_training.control.reports import ProgressReport
from airflow_training.control.rollup import eta_seconds, timestamp
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.records import MetricPoint
from airflow_training.web.instance_usage import InstanceUsage

__all__ = ["ListedProgress", "last_heard", "listed_progress", "sample_rates"]

_RATE = "samples_per_second"


class ListedProgress(BaseModel):
    """How far a run is, as lists show it: its slowest instance counts."""

    step: int
    total_steps: int | None
    fraction: float | None
    eta_seconds: float | None
    """At the speed of the present attempts; None where nobody can tell."""


def listed_progress(
    told: Sequence[tuple[InstanceEntry, ProgressReport]], *, now: float
) -> ListedProgress | None:
    """Return how far instances are together, of their entries and newest reports; None: none told a step."""
    here = [(entry, each) for entry, each in told if not entry.retired and each.step is not None]
    if not here:
        return None
    step = min(each.step for _, each in here if each.step is not None)
    total = max((each.total_steps or 0 for _, each in here), default=0) or None
    left = [eta for entry, each in here if (eta := eta_seconds(entry, each, now=now)) is not None]
    return ListedProgress(
        step=step,
        total_steps=total,
        fraction=None if total is None else min(1.0, step / total),
        eta_seconds=max(left, default=None),
    )


def last_heard(
    entries: Iterable[InstanceEntry],
    *,
    progress: Mapping[InstanceKey, ProgressReport],
    points: Iterable[MetricPoint],
    usage: Mapping[InstanceKey, InstanceUsage],
    now: float,
) -> Mapping[InstanceKey, str]:
    """Return when each instance whose attempt began was last heard from, in words or by what it does.

    Times are the instance's own; one that is ahead of ours counts as now.
    """
    now_text = timestamp(now) or ""
    newest: dict[tuple[str, int], float] = {}
    for point in points:
        key = (point.role, point.index)
        newest[key] = max(newest.get(key, 0.0), point.at)
    found: dict[InstanceKey, str] = {}
    for entry in entries:
        if entry.retired or entry.started_at is None:
            continue
        report = progress.get(entry.key)
        looked = usage.get(entry.key)
        at = max(
            newest.get(entry.key, 0.0), entry.last_transition_at, (report and report.time) or 0.0
        )
        # texts of one form, in UTC, sort as their times do
        found[entry.key] = min(max(timestamp(at) or "", looked.at if looked else ""), now_text)
    return found


def sample_rates(
    readings: Mapping[InstanceKey, DataReading],
    metrics: Mapping[InstanceKey, Mapping[str, float]],
    *,
    entries: Mapping[InstanceKey, InstanceEntry],
    state: JobState,
) -> Mapping[InstanceKey, float]:
    """Return samples per second: as counted from the samples that an instance told, else as it says itself.

    Of those that run, none while the run is paused; of one that is over, the last of all that belonged to it.
    """
    if state == "Paused":
        return {}
    over = state in TERMINAL_JOB_STATES
    counting = {
        key
        for key, each in entries.items()
        if not each.retired and (over or each.state == "running")
    }
    said = {
        key: value for key, values in metrics.items() if (value := values.get(_RATE)) is not None
    }
    counted = {
        key: rate
        for key, reading in readings.items()
        if (rate := rate_of(reading.points, "samples")) is not None
    }
    rates = {**said, **counted}
    return {key: rate for key, rate in rates.items() if key in counting and math.isfinite(rate)}

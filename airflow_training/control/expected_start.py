"""How long a job may wait until all of it runs, by how long its earlier runs did. Pure; no promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from airflow_training.control.model import TERMINAL_JOB_STATES, JobEntry
from airflow_training.documents.text import counted

__all__ = ["ExpectedStart", "expected_start", "is_waiting", "waited_seconds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedStart:
    """From submission until all instances ran, in earlier runs of the same job in the same queue."""

    median_seconds: float
    shortest_seconds: float
    longest_seconds: float
    runs: int

    def to_document(self) -> dict[str, Any]:
        """The estimate as `status` prints it."""
        return asdict(self)

    def __str__(self) -> str:
        told = f"earlier runs waited {_duration(self.median_seconds)}"
        if self.runs == 1:
            return f"{told} (one run; no promise)"
        span = f"{_duration(self.shortest_seconds)} to {_duration(self.longest_seconds)}"
        return f"{told} (median of {counted(self.runs, 'run')}, {span}; no promise)"


def expected_start(waits: Sequence[float]) -> ExpectedStart | None:
    """Estimate a start from earlier waits; None where there were none."""
    if not waits:
        return None
    return ExpectedStart(
        median_seconds=round(median(waits), 1),
        shortest_seconds=round(min(waits), 1),
        longest_seconds=round(max(waits), 1),
        runs=len(waits),
    )


def is_waiting(job: JobEntry) -> bool:
    """Return whether a run has yet to run as a whole for the first time."""
    return job.running_at is None and job.state not in TERMINAL_JOB_STATES and not job.epoch


def waited_seconds(job: JobEntry) -> float | None:
    """Return how long a run took from its submission until all of it ran; None where that says nothing."""
    if job.running_at is None or job.epoch or job.paused_seconds:
        return None
    return max(0.0, job.running_at - job.submitted_at)


def _duration(seconds: float) -> str:
    for size, name in ((3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.3g} {name}"
    return f"{seconds:.0f} s"

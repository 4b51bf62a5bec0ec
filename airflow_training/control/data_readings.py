"""What an instance has read of its data, followed over its reports. Pure: it is told the time.

What is kept of each instance has a bounded size, however long it trains: the newest reports for the
rate, and the stalls, in which neither files, samples nor steps got anywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from airflow_training.control.reports import FilesReport, ProgressReport

__all__ = ["DataReading", "ReadingPoint", "Stall", "follow_reading", "rate_of", "stall_limit"]

_STALL_SECONDS = 30.0
_STALL_FACTOR = 5.0
"""Times the usual time between two reports that got somewhere: as `checkpoint.progress` has it."""
_FEWEST_POINTS = 3
"""Before, nobody knows how often the script reports."""
_MOST_POINTS = 24
_POINT_SECONDS = 2.0
_MOST_STALLS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingPoint:
    """How far an instance was at one time."""

    at: float
    step: int | None = None
    samples: int | None = None
    read: float | None = None
    """Of all its files, in the unit that the script counts in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """A time in which an instance read nothing, and made no step."""

    started_at: float
    seconds: float
    step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DataReading:
    """What is known of one instance."""

    since: float
    """When it last got anywhere."""
    points: tuple[ReadingPoint, ...] = ()
    """The newest, at least two seconds apart."""
    stalls: tuple[Stall, ...] = ()
    """The newest of those that are over."""
    stall_count: int = 0
    stall_seconds: float = 0.0
    """Of all that are over."""
    section: str = ""
    """It is not training but doing this: then nothing is expected."""
    over: bool = False
    """The last step is done."""
    files: FilesReport | None = None


def follow_reading(
    earlier: DataReading | None, report: ProgressReport, *, now: float
) -> DataReading | None:
    """The data reading after a report; None where no report ever spoke of data."""
    if earlier is None and report.samples is None and report.files is None:
        return None
    at = now if report.time is None else report.time
    files = report.files or (None if earlier is None else earlier.files)
    last = earlier.points[-1] if earlier is not None else ReadingPoint(at=at)
    point = ReadingPoint(
        at=at,
        step=last.step if report.step is None else report.step,
        samples=last.samples if report.samples is None else report.samples,
        read=last.read if report.files is None else report.files.read,
    )
    over = report.step is not None and report.step == report.total_steps
    if earlier is None:
        return DataReading(
            since=at, points=(point,), section=report.section, over=over, files=files
        )
    known = replace(earlier, section=report.section, over=over, files=files)
    if _went_back(last, point):  # another attempt, or the script has begun anew
        return replace(known, since=at, points=(point,))
    if report.section or earlier.section:
        return replace(known, since=at, points=_with(earlier.points, point))
    if (point.step, point.samples, point.read) == (last.step, last.samples, last.read):
        return known
    stalled = at - earlier.since
    if not over and stalled > stall_limit(earlier.points):
        stall = Stall(started_at=earlier.since, seconds=stalled, step=last.step)
        known = replace(
            known,
            stalls=(*earlier.stalls, stall)[-_MOST_STALLS:],
            stall_count=earlier.stall_count + 1,
            stall_seconds=earlier.stall_seconds + stalled,
        )
    return replace(known, since=at, points=_with(earlier.points, point))


def _went_back(last: ReadingPoint, point: ReadingPoint) -> bool:
    pairs = (
        (last.at, point.at),
        (last.step, point.step),
        (last.samples, point.samples),
        (last.read, point.read),
    )
    return any(was is not None and now is not None and now < was for was, now in pairs)


def _with(points: Sequence[ReadingPoint], point: ReadingPoint) -> tuple[ReadingPoint, ...]:
    """Add a point; instead of the newest, where that is less than two seconds after the one before."""
    near = len(points) > 1 and points[-1].at - points[-2].at < _POINT_SECONDS
    return (*(points[:-1] if near else points), point)[-_MOST_POINTS:]


def stall_limit(points: Sequence[ReadingPoint]) -> float:
    """Return after how many seconds without getting anywhere an instance counts as stalled."""
    if len(points) < _FEWEST_POINTS:
        return float("inf")
    gaps = sorted(later.at - before.at for before, later in pairwise(points))
    return max(_STALL_SECONDS, _STALL_FACTOR * gaps[len(gaps) // 2])


def rate_of(points: Sequence[ReadingPoint], what: str) -> float | None:
    """Return how much of `samples` or `read` came in each second of the newest points, if that is known."""
    told = [(each.at, value) for each in points if (value := getattr(each, what)) is not None]
    if len(told) < 2 or told[-1][0] <= told[0][0]:
        return None
    return float((told[-1][1] - told[0][1]) / (told[-1][0] - told[0][0]))

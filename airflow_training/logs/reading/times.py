"""Part of a log by time: found by bisection over offsets, then read on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from airflow_training.logs.lines.cleaning import clean
from airflow_training.logs.lines.prefixes import LONGEST, prefix
from airflow_training.logs.reading.source import BLOCK_BYTES, Line, Source, lines

__all__ = ["TimedLine", "between", "has_times", "offset_at", "time_of", "timed"]

_DISORDER_SECONDS = 60.0
"""Lines of several writers may stand so much out of order; beyond, a log is taken to be in order."""
_CLOSE_BYTES = 64 << 10


class TimedLine(NamedTuple):
    """A line with its time, or that of the last line before it that has one."""

    time: float | None
    line: Line


def time_of(line: bytes) -> float | None:
    """Return the time that a line tells, UTC seconds since 1970; a time without zone is UTC."""
    return prefix(clean(line[: 2 * LONGEST])).time


def timed(source: Source, *, start: int = 0) -> Iterator[TimedLine]:
    """Yield the lines from `start` with their times (UTC seconds since 1970)."""
    time = None
    for line in lines(source, start=start):
        own = time_of(line.data)
        time = time if own is None else own
        yield TimedLine(time, line)


def between(
    source: Source, *, since: float | None = None, until: float | None = None
) -> Iterator[TimedLine]:
    """Yield the lines of a stretch of time, both ends included.

    A line without a time goes with the one before it; lines before the first time are left out
    where there is a `since`.
    """
    start = 0 if since is None else offset_at(source, since - _DISORDER_SECONDS)
    for each in timed(source, start=start):
        if each.time is None:
            if since is None:
                yield each
            continue
        if until is not None and each.time > until + _DISORDER_SECONDS:
            return
        if (since is None or each.time >= since) and (until is None or each.time <= until):
            yield each


def has_times(source: Source) -> bool:
    """Return whether any line of a log tells its time; reads up to the first that does."""
    return any(each.time is not None for each in timed(source))


def offset_at(source: Source, time: float) -> int:
    """Return the start of a line before which all are older than `time`, and near which it is reached.

    0 where the source does not know its size.
    """
    low, high = 0, source.size() or 0
    while high - low > _CLOSE_BYTES:
        middle = (low + high) // 2
        found = _next_time(source, middle, high)
        if found is None or found.time is None or found.time >= time:
            high = middle
        else:
            low = found.line.offset
    return low


def _next_time(source: Source, offset: int, stop: int) -> TimedLine | None:
    """Return the first line that begins in a stretch and has a time of its own."""
    whole = False
    at = offset
    rest = b""
    while at < stop:
        part = source.read(at, _CLOSE_BYTES)
        if not part.data:
            return None
        text, begin = rest + part.data, part.next_offset - len(part.data) - len(rest)
        position = 0
        while (end := text.find(b"\n", position) + 1) > 0:
            if whole:
                time = time_of(text[position:end])
                if time is not None:
                    return TimedLine(time, Line(begin + position, text[position:end]))
            whole, position = True, end
            if begin + position >= stop:
                return None
        rest = text[position:][-BLOCK_BYTES:] if whole else b""
        at = part.next_offset
    return None

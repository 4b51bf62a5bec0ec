"""Logs of several ranks as one, by time, with clocks that differ set right. Holds one line of each."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from statistics import median
from typing import NamedTuple

from airflow_training.logs.lines.cleaning import clean
from airflow_training.logs.lines.prefixes import prefix
from airflow_training.logs.reading.source import Source
from airflow_training.logs.reading.times import TimedLine, timed

__all__ = ["MergedLine", "clock_skews", "merge"]

_SAMPLE_BYTES = 4 << 20
_LOOKED_AT = 400
"""Bytes of a line."""
_FEWEST_COMMON = 5
_LARGEST_SPREAD = 0.25
"""Of the skew: what differs more from line to line is no clock that is wrong."""
_EVENT = re.compile(rb"[^\d]{0,60}(?:\d+(?![\d.])[^\d]{0,40}){1,3}")
"""The beginning of a line up to its first fraction: `step: 10 loss: ` is the same on every rank."""


class MergedLine(NamedTuple):
    source: int
    """Which of the merged logs it is from."""
    time: float | None
    """By the clock of the first log."""
    line: TimedLine


def merge(
    streams: Sequence[Iterable[TimedLine]], *, skews: Sequence[float] = ()
) -> Iterator[MergedLine]:
    """Yield the lines of all streams by time; within a stream their order stays.

    `skews`: seconds that each log's clock is ahead (see `clock_skews`). Lines without a time come
    right after the line before them; those before the first time come first.
    """
    ahead = skews or [0.0] * len(streams)
    placed = (_placed(*each) for each in zip(range(len(streams)), streams, ahead, strict=True))
    for at, number, line in heapq.merge(*placed):
        yield MergedLine(number, None if line.time is None else at, line)


def _placed(
    number: int, stream: Iterable[TimedLine], ahead: float
) -> Iterator[tuple[float, int, TimedLine]]:
    """Yield the lines of one stream with the time at which each has its place."""
    reached = float("-inf")
    for line in stream:
        if line.time is not None:
            # never back: a line out of order stays behind the one before it
            reached = max(reached, line.time - ahead)
        yield reached, number, line


def clock_skews(sources: Sequence[Source]) -> list[float]:
    """Return by how many seconds each log's clock is ahead of the first's; 0 where it cannot be told.

    Ranks that train together report the same step at about the same time. So the beginnings of
    the logs are searched for lines that all print, and their times are compared.
    """
    if len(sources) < 2:
        return [0.0] * len(sources)
    seen = [_events(source) for source in sources]
    return [0.0, *(_skew(seen[0], other) for other in seen[1:])]


def _events(source: Source) -> dict[bytes, float]:
    """Return when each event was first told of, in the beginning of a log."""
    found: dict[bytes, float] = {}
    near = takewhile(lambda each: each.line.offset < _SAMPLE_BYTES, timed(source))
    for _, line in near:
        text = clean(line.data[:_LOOKED_AT])
        about = prefix(text)
        if about.time is None or about.time_span is None:
            continue
        event = _EVENT.match(text, max(about.length, about.time_span[1]))
        if event is not None:
            found.setdefault(event[0], about.time)
    return found


def _skew(first: dict[bytes, float], other: dict[bytes, float]) -> float:
    ahead = [other[event] - first[event] for event in first.keys() & other.keys()]
    if len(ahead) < _FEWEST_COMMON:
        return 0.0
    middle = median(ahead)
    spread = median(abs(each - middle) for each in ahead)
    return middle if spread <= _LARGEST_SPREAD * abs(middle) else 0.0

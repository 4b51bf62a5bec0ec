"""Stretches of several logs merged by time: what belongs on one page, forward or backward. Bounded, and pure but for reading.

The order is that of `merge`: by time, within a log as it is; a line without a time stands with the
one before it in its log, and one before the first time where its attempt began.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from airflow_training.logs.reading.merge import MergedLine, merge
from airflow_training.logs.reading.source import Line, Source
from airflow_training.logs.reading.times import TimedLine, time_of

__all__ = ["LogWindow", "page_after", "page_before", "window_after", "window_before"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogWindow:
    """Whole lines of one log that touch each other."""

    lines: Sequence[TimedLine]
    start: int
    end: int
    more: bool
    """There are lines beyond, in the direction that was read."""


def window_after(
    source: Source, start: int, *, size: int, time: float, over: bool = False
) -> LogWindow:
    """Lines after an offset, at which a line begins. `time`: of the line before it.

    `over`: nobody writes any more, so that a last line without an end is whole.
    """
    data, at, ended = b"", start, False
    while len(data) < size and not ended:
        part = source.read(at, size - len(data))
        if not part.data:
            ended = part.end
            break
        data, at, ended = data + part.data, part.next_offset, part.end
    begin = at - len(data)  # the beginning of a log may be gone
    full = len(data) >= size
    if not ended and not (over and not full):
        data = data[: data.rfind(b"\n") + 1] or (data if full else b"")
    lines = _timed(data, begin, time)
    end = begin + len(data)
    return LogWindow(lines=lines, start=begin, end=end, more=full and not ended)


def window_before(
    source: Source, end: int, *, size: int, time: float, growing: bool = False
) -> LogWindow:
    """Lines before an offset, at which a line begins. `time`: where the log begins.

    `growing`: the offset is the end of what is being written, perhaps half a line.
    """
    asked = max(0, end - size)
    data, at = b"", asked
    while at < end:
        part = source.read(at, end - at)
        if not part.data:
            break
        data, at = data + part.data, part.next_offset
    begin = at - len(data)
    if growing:
        data = data[: data.rfind(b"\n") + 1] or (data if asked else b"")
        end = begin + len(data)
    lines = _timed(data, begin, time)
    if not asked:
        return LogWindow(lines=lines, start=begin, end=end, more=False)
    # the first is half a line, and what follows a line that is not here belongs to it
    whole = lines[1:] if len(lines) > 1 else lines
    timed = next((n for n, each in enumerate(whole) if time_of(each.line.data) is not None), 0)
    whole = whole[timed:]
    return LogWindow(lines=whole, start=whole[0].line.offset if whole else end, end=end, more=True)


def page_after(windows: Sequence[LogWindow], *, size: int) -> tuple[list[MergedLine], list[int]]:
    """Return the first lines of the windows together, and where each log goes on.

    A log of which only a part was read says nothing about what comes after that part.
    """
    limit = min(_edges(windows, -1), default=(math.inf, 0))
    page = _up_to(merge([each.lines for each in windows]), size, lambda place: place > limit)
    ends = [each.start for each in windows]
    for merged in page:
        ends[merged.source] = merged.line.line.offset + len(merged.line.line.data)
    return page, ends


def page_before(windows: Sequence[LogWindow], *, size: int) -> tuple[list[MergedLine], list[int]]:
    """Return the last lines of the windows together, and where each log begins on the page."""
    limit = max(_edges(windows, 0), default=(-math.inf, 0))
    lines = reversed([*merge([each.lines for each in windows])])
    page = _up_to(lines, size, lambda place: place < limit)
    starts = [each.end for each in windows]
    for merged in page:
        starts[merged.source] = merged.line.line.offset
    return page[::-1], starts


def _edges(windows: Sequence[LogWindow], at: int) -> Iterator[tuple[float, int]]:
    """Yield time and number of the line at one end of each log of which only a part was read."""
    for number, each in enumerate(windows):
        if each.more and each.lines:
            yield each.lines[at].time or 0.0, number


def _up_to(
    lines: Iterable[MergedLine], size: int, is_beyond: Callable[[tuple[float, int]], bool]
) -> list[MergedLine]:
    """Return lines of so many bytes, one at least, up to the first whose time and log are beyond what is known."""
    page: list[MergedLine] = []
    for merged in lines:
        size -= len(merged.line.line.data)
        if is_beyond((merged.time or 0.0, merged.source)) or (page and size < 0):
            break
        page.append(merged)
    return page


def _timed(data: bytes, begin: int, time: float) -> list[TimedLine]:
    found = []
    at = 0
    while at < len(data):
        stop = data.find(b"\n", at) + 1 or len(data)
        text = data[at:stop]
        own = time_of(text)
        # never back: a line out of order stays behind the one before it
        time = time if own is None else max(time, own)
        found.append(TimedLine(time, Line(begin + at, text)))
        at = stop
    return found

"""Where line number n of a log begins: counted once, as far as anybody asks, and remembered sparsely."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections import OrderedDict

from airflow_training.logs.reading.source import BLOCK_BYTES, Source

__all__ = ["LineIndex", "LineIndexes"]

_SPACING = 4096
"""Lines between two that are remembered, at first."""
_MOST_MARKS = 65_536
"""Then every other one is forgotten: a MiB for each log at most."""
_APART = 1 << 26
"""Bytes between two at most, so that a place behind very long lines is found as soon."""
_LOGS = 64
_STRIDE = 4096
"""Bytes whose lines are counted together, as that is far quicker than to find each."""


class LineIndex:
    """Places in one log that only grows, with the line ends before them; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spacing = _SPACING
        self._ends, self._places = array("Q", [0]), array("Q", [0])
        """How many lines end before each place: it is the beginning of a line, or the middle of a very long one."""
        self.lines = 0
        """How many line ends were counted."""
        self.bytes = 0
        """How far."""

    def count(self, source: Source, line: int, *, budget: int) -> bool:
        """Count until this line is reached or `budget` bytes were read; False where the log ends before."""
        with self._lock:
            until = self.bytes + budget
            while self.lines < line and self.bytes < until:
                part = source.read(self.bytes, BLOCK_BYTES)
                self._take(part.data, part.next_offset)
                if part.end or not part.data:
                    return self.lines >= line
            return True

    def _take(self, data: bytes, end: int) -> None:
        begin, at, found = end - len(data), 0, data.count(b"\n")
        while found >= (missing := self._ends[-1] + self._spacing - self.lines):
            at = _skip(data, at, missing)
            self.lines += missing
            found -= missing
            self._mark(begin + at)
        self.lines += found
        self.bytes = end
        if end - self._places[-1] >= _APART:
            self._mark(end)

    def _mark(self, place: int) -> None:
        self._ends.append(self.lines)
        self._places.append(place)
        if len(self._ends) > _MOST_MARKS:
            self._ends, self._places = self._ends[::2], self._places[::2]
            self._spacing *= 2

    def offset(self, source: Source, line: int) -> int | None:
        """Return where a line begins; None where it was not counted yet."""
        with self._lock:
            if line > self.lines:
                return None
            if line == 0:
                return 0
            near = bisect_left(self._ends, line) - 1  # the line itself begins behind it
            left, at = line - self._ends[near], self._places[near]
        while True:
            part = source.read(at, BLOCK_BYTES)
            found = part.data.count(b"\n")
            if found < left and part.data:
                left, at = left - found, part.next_offset
                continue
            place = _skip(part.data, 0, min(left, found))
            return part.next_offset - len(part.data) + place


def _skip(data: bytes, at: int, lines: int) -> int:
    """Return where the line begins that is so many behind `at`; there are as many."""
    while lines > (found := data.count(b"\n", at, at + _STRIDE)):
        lines, at = lines - found, at + _STRIDE
    for _ in range(lines):
        at = data.index(b"\n", at) + 1
    return at


class LineIndexes:
    """Those of the logs that were asked for last; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[tuple[str, ...], LineIndex] = OrderedDict()

    def of(self, *log: str) -> LineIndex:
        """Return that of a log: the same for the same name and generation."""
        with self._lock:
            found = self._known.setdefault(log, LineIndex())
            self._known.move_to_end(log)
            while len(self._known) > _LOGS:
                self._known.popitem(last=False)
            return found

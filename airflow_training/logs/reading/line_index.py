"""Where line number n of a log begins: counted once, as far as anybody asks, and remembered sparsely."""

from __future__ import annotations

import threading
from array import array
from collections import OrderedDict

from airflow_training.logs.reading.source import BLOCK_BYTES, Source

__all__ = ["LineIndex", "LineIndexes"]

_SPACING = 4096
"""Lines between two that are remembered, at first."""
_MOST_MARKS = 65_536
"""Then every other one is forgotten: half a MiB for each log at most."""
_LOGS = 64
_STRIDE = 4096
"""Bytes whose lines are counted together, as that is far quicker than to find each."""


class LineIndex:
    """The beginnings of some lines of one log that only grows; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spacing = _SPACING
        self._marks = array("Q", [0])
        """Where line 0, `_spacing`, twice that ... begins; the first line has the number 0 here."""
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
        while True:
            missing = len(self._marks) * self._spacing - self.lines
            if found < missing:
                self.lines += found
                break
            at = _skip(data, at, missing)
            self.lines += missing
            found -= missing
            self._marks.append(begin + at)
            if len(self._marks) > _MOST_MARKS:
                self._marks = self._marks[::2]
                self._spacing *= 2
        self.bytes = end

    def offset(self, source: Source, line: int) -> int | None:
        """Return where a line begins; None where it was not counted yet."""
        with self._lock:
            if line > self.lines:
                return None
            left, at = line % self._spacing, self._marks[line // self._spacing]
        while left:
            part = source.read(at, BLOCK_BYTES)
            found = part.data.count(b"\n")
            if found < left and part.data:
                left, at = left - found, part.next_offset
                continue
            place = _skip(part.data, 0, min(left, found))
            return part.next_offset - len(part.data) + place
        return at


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

"""The lines around a hit: those of its rank, and the last time that was written before it."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace

from airflow_training.logs.lines.cleaning import clean, shown
from airflow_training.logs.lines.prefixes import prefix
from airflow_training.logs.model import Hit

LONGEST_CONTEXT = 500
CONTEXT_LINES = 40
CONTEXT_BYTES = 65_536
"""Looked at on either side of a hit, but not more than so many lines:"""
MOST_LINES = 400
AFTER_BYTES = CONTEXT_BYTES + 4096
"""What must have been read behind a hit so that its surroundings are complete."""

_SEPARATOR = re.compile(rb"[\n\r\b]")
_DATE = re.compile(rb"\d{4}[-/]\d\d[-/]\d\d")

_Line = tuple[str, "int | None", "float | None"]


class Surroundings:
    """Reads the surroundings of hits that come in order; what lies around several of them is read once."""

    def __init__(self, read: Callable[[int, int], bytes], own: int | None) -> None:
        self._read = read
        self._own = own
        self._load(0, 0)

    def _load(self, start: int, end: int) -> None:
        self._start = start
        self._end = end
        self._data = self._read(start, end) if end else b""
        self._dated = _DATE.search(self._data) is not None
        self._starts = [0, *(found.end() for found in _SEPARATOR.finditer(self._data))]
        self._lines: dict[int, _Line] = {}

    def add_to(self, hit: Hit) -> Hit:
        """Return the hit with the lines around it and, if it has none, the time of a line before."""
        if hit.offset + AFTER_BYTES > self._end or hit.offset < self._start:
            self._load(max(0, hit.offset - CONTEXT_BYTES), hit.offset + 2 * AFTER_BYTES)
        own = bisect_right(self._starts, hit.offset - self._start) - 1
        lowest = max(0, hit.offset - CONTEXT_BYTES) - self._start
        first = max(bisect_left(self._starts, lowest), own - MOST_LINES)
        if lowest > 0 or self._start:
            first = max(first, 1)  # the line that is cut there
        highest = hit.offset + CONTEXT_BYTES - self._start
        last = min(bisect_right(self._starts, highest), own + MOST_LINES, len(self._starts))
        time = hit.time
        if time is None and self._dated:
            times = (self._line(number)[2] for number in range(own - 1, first - 1, -1))
            time = next((each for each in times if each is not None), None)
        before = self._texts(range(own - 1, first - 1, -1), hit.rank)
        after = self._texts(range(own + 1, last), hit.rank)
        return replace(hit, time=time, before=tuple(reversed(before)), after=tuple(after))

    def _texts(self, numbers: Iterable[int], rank: int | None) -> list[str]:
        """Return the texts of the first lines of a rank."""
        texts: list[str] = []
        for number in numbers:
            text, of, _ = self._line(number)
            if text and of == rank:
                texts.append(text)
                if len(texts) == CONTEXT_LINES:
                    break
        return texts

    def _line(self, number: int) -> _Line:
        """Return text, rank and time of a line."""
        known = self._lines.get(number)
        if known is None:
            start = self._starts[number]
            following = self._starts[number + 1 : number + 2]
            end = following[0] - 1 if following else len(self._data)
            known = self._lines[number] = self._taken(self._data[start : min(end, start + 4096)])
        return known

    def _taken(self, line: bytes) -> _Line:
        if not line:
            return "", None, None
        text = clean(line)
        head = prefix(text)
        rank = self._own if head.rank is None else head.rank
        return shown(text[head.length :], LONGEST_CONTEXT), rank, head.time


def first_time(lines: Iterable[bytes]) -> float | None:
    """Return the time of the first of some lines that has one."""
    return next((time for line in lines if (time := prefix(clean(line)).time) is not None), None)

"""How serious a line is by itself, by what the diagnosis takes for an error and for what a program lives through."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Literal

from airflow_training.logs.diagnosis.evidence import MILD
from airflow_training.logs.diagnosis.markers import ELASTIC, EXCEPTION, MARKERS, TRACEBACK
from airflow_training.logs.reading.memory import BytesLog
from airflow_training.logs.reading.search import Searcher
from airflow_training.logs.reading.source import BLOCK_BYTES, LogSlice, Source, UnrotatedLog

__all__ = [
    "SEVERITIES",
    "Severity",
    "error_lines",
    "next_error",
    "previous_error",
    "severities",
    "severity_of",
]

Severity = Literal["info", "warning", "error"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error")
"""In the order of their weight."""

_TRACEBACK = re.compile(MARKERS[TRACEBACK])
_ERROR = re.compile(
    "|".join(MARKERS[name] for name in (TRACEBACK, EXCEPTION, ELASTIC))
    + r"|\b(?:ERROR|CRITICAL|FATAL|PANIC)\b|^\s*(?:[Ee]rror|[Ff]atal|[Pp]anic)\b.{0,40}?: |\[[Ee]rror\]"
    r"|\b(?:[Ss]egmentation fault|core dumped|[Oo]ut of memory|OOM)\b|^Killed$"
)
_INFO = re.compile(r"\[I \d|(?:^|[\[\s])I[01]\d[0-3]\d |\b(?:INFO|DEBUG)\b")
_MAYBE = (
    "Error|Exception|Interrupt|SystemExit|StopIteration|TimeoutExpired|timeout|error|Empty|exceptions"
    "|Traceback|Root Cause|failed|ERROR|CRITICAL|FATAL|PANIC|[Ff]atal|[Pp]anic|fault|core dumped|memory|OOM|Killed"
)
"""What every line has that `_ERROR` matches, for an engine that is faster and knows less."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_INSIDE = (" ", "\t", "|", "+", "│", "╭", "╰")
"""How lines of a traceback begin, but for its last one."""


def severity_of(text: str) -> Severity:
    """Return how serious a line is, whatever stands around it."""
    if "\x1b" in text:  # a coloured level: the last letter of the escape touches its word
        text = _COLOURS.sub("", text)
    if MILD.search(text):
        return "info" if _INFO.search(text) else "warning"
    return "error" if _ERROR.search(text) else "info"


def severities(lines: Iterable[str]) -> Iterator[Severity]:
    """Yield how serious each line is: all of a traceback is an error."""
    inside = False
    for line in lines:
        if inside and (not line.strip() or line.startswith(_INSIDE)):
            yield "error"
            continue
        if inside:  # its last line, whatever the exception is called
            inside = False
            yield "error"
            continue
        inside = _TRACEBACK.search(line) is not None
        yield severity_of(line)


def error_lines(text: str, *, inside: bool = False) -> tuple[list[int], bool]:
    """Return which lines of a text are errors, from 0, and whether it ends inside a traceback.

    `inside`: what is before the text does. Much faster than `severities` where few lines are.
    """
    maybe = {each.number - 1 for each in Searcher(_MAYBE).search(BytesLog("", text.encode()))}
    found = []
    for number, line in enumerate(text.removesuffix("\n").split("\n") if text else ()):
        if inside:
            found.append(number)
            inside = not line.strip() or line.startswith(_INSIDE)
        elif number in maybe:
            inside = _TRACEBACK.search(line) is not None
            if severity_of(line) == "error":
                found.append(number)
    return found, inside


def next_error(source: Source, *, start: int, stop: int) -> int | None:
    """Return the offset of the first line that is an error and begins in a stretch; None for none."""
    return next(_errors(source, start, stop), None)


def previous_error(source: Source, *, stop: int, size: int) -> tuple[int | None, int]:
    """Return the offset of the last line before `stop` that is an error, None for none, and how far back that was.

    About `size` bytes are looked at; at `stop` a line begins, as it does where to go on from.
    """
    least = max(0, stop - size)
    window = _FIRST_WINDOW
    while stop > least:
        start = _line_start(source, max(least, stop - window), stop)
        found = deque(_errors(source, start, stop), maxlen=1)
        if found:
            return found[0], start
        stop, window = start, 4 * window
    return None, stop


_FIRST_WINDOW = 1 << 18
"""The nearest errors are found at once; then ever larger ones."""


def _line_start(source: Source, offset: int, stop: int) -> int:
    """Return where the first line begins from an offset on; in a line that goes on to `stop`, the offset."""
    if not offset:
        return 0
    begin = offset - 1
    part = source.read(begin, min(stop - begin, BLOCK_BYTES))
    start = part.next_offset - len(part.data) + part.data.find(b"\n") + 1
    return start if begin < start < stop else offset


def _errors(source: Source, start: int, stop: int) -> Iterator[int]:
    for match in Searcher(_MAYBE).search(_Stretch(source, start, stop)):
        text = match.line.data[:_LOOKED_AT].decode(errors="replace").rstrip("\r\n")
        if severity_of(text) == "error":
            yield start + match.line.offset


_LOOKED_AT = 4096
"""Bytes of a line."""


class _Stretch(UnrotatedLog):
    """A part of a log, as if it were all: for what reads from the beginning to the end. The log stays open."""

    def __init__(self, source: Source, start: int, stop: int) -> None:
        self.name = source.name
        self._source = source
        self._start = start
        self._stop = stop

    def read(self, offset: int, limit: int) -> LogSlice:
        """Return bytes, at most to the end of the stretch."""
        at = self._start + offset
        if at >= self._stop:
            return LogSlice(b"", offset, end=True)
        part = self._source.read(at, min(limit, self._stop - at))
        return LogSlice(part.data, part.next_offset - self._start, part.end)

    def size(self) -> int | None:
        """Return None: nobody asks."""
        return None

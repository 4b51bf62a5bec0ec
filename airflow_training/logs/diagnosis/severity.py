"""How serious a line is by itself, by what the diagnosis takes for an error and for what a program lives through."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal

from airflow_training.logs.diagnosis.evidence import MILD
from airflow_training.logs.diagnosis.markers import ELASTIC, EXCEPTION, MARKERS, TRACEBACK
from airflow_training.logs.reading.search import Searcher
from airflow_training.logs.reading.source import LogSlice, Source

__all__ = ["SEVERITIES", "Severity", "next_error", "severities", "severity_of"]

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
_INSIDE = (" ", "\t", "|", "+", "│", "╭", "╰")
"""How lines of a traceback begin, but for its last one."""


def severity_of(text: str) -> Severity:
    """Return how serious a line is, whatever stands around it."""
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


def next_error(source: Source, *, start: int, stop: int) -> int | None:
    """Return the offset of the first line that is an error and begins in a stretch; None for none."""
    for match in Searcher(_MAYBE).search(_Stretch(source, start, stop)):
        text = match.line.data[:_LOOKED_AT].decode(errors="replace").rstrip("\r\n")
        if severity_of(text) == "error":
            return start + match.line.offset
    return None


_LOOKED_AT = 4096
"""Bytes of a line."""


class _Stretch:
    """A part of a log, as if it were all: for what reads from the beginning to the end."""

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

    def changed(self) -> bool:
        """Return False."""
        return False

    def reopen(self) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Leave the source open: it is another's."""

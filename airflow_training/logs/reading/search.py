"""Lines that match a pattern, with lines around them: one pass, bounded memory, time linear in the log."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_training.errors import TrainingError
from airflow_training.logs.reading.source import BLOCK_BYTES, LONGEST_LINE, Line, Source

__all__ = ["BadPattern", "LineMatch", "Searcher"]


class BadPattern(TrainingError):
    """The pattern cannot be compiled; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LineMatch:
    """A line that matches."""

    number: int
    """Of the line, from 1."""
    line: Line
    before: tuple[Line, ...] = ()
    after: tuple[Line, ...] = ()
    at: int = 0
    """Where in the line the match begins."""


class _SearchWindow(NamedTuple):
    """A stretch of a log: `text[begin:stop]` is to be searched, the rest is context."""

    text: bytes
    offset: int
    begin: int
    stop: int


class Searcher:
    """A compiled pattern in RE2's syntax; it is searched in the bytes of each line."""

    def __init__(self, pattern: str, *, ignore_case: bool = False, literal: bool = False) -> None:
        """`literal`: the pattern is plain text. Raises BadPattern."""
        import re2

        options = re2.Options()
        options.encoding = re2.Options.Encoding.LATIN1  # any byte is a character: logs hold junk
        options.never_nl = True
        options.log_errors = False
        options.case_sensitive = not ignore_case
        text = re2.escape(pattern) if literal else pattern
        try:
            self._pattern: Any = re2.compile(f"(?m){text}".encode(), options)
        except re2.error as error:
            reason = error.args[0]
            said = reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
            raise BadPattern(said.replace("(?m)", "")) from error

    def search(self, source: Source, *, context: int = 0) -> Iterator[LineMatch]:
        """Yield every matching line with up to `context` lines before and after it."""
        number = 1
        for window in _windows(source, context):
            text, at = window.text, window.begin
            while at < window.stop:
                match = self._pattern.search(text, at, window.stop)
                if match is None or match.start() >= window.stop:
                    break  # also `^$` behind the last line end
                start = text.rfind(b"\n", 0, match.start()) + 1
                stop = _end_of_line(text, match.start(), window.stop)
                number += text.count(b"\n", at, start)
                at = stop
                yield LineMatch(
                    number=number,
                    line=Line(window.offset + start, text[start:stop]),
                    before=_before(window, start, context),
                    after=_after(window, stop, context),
                    at=match.start() - start,
                )
                number += text.endswith(b"\n", start, stop)
            number += text.count(b"\n", at, window.stop)


def _windows(source: Source, context: int) -> Iterator[_SearchWindow]:
    """Yield windows that touch each other, each with `context` lines on both sides where there are."""
    held, offset, begin = b"", 0, 0
    while True:
        part = source.read(offset + len(held), BLOCK_BYTES)
        if not held:
            offset = part.next_offset - len(part.data)
        held += part.data
        last = part.end or not part.data
        stop = len(held) if last else _back(held, len(held), context + 1)
        if stop <= begin and len(held) - begin >= LONGEST_LINE:
            stop = len(held)
        if stop > begin:
            yield _SearchWindow(held, offset, begin, stop)
            keep = max(_back(held, stop, context + 1), stop - LONGEST_LINE) if context else stop
            held, offset, begin = held[keep:], offset + keep, stop - keep
        if last:
            return


def _back(text: bytes, end: int, lines: int) -> int:
    """Return where the last `lines` line ends before `end` begin: what follows are that many lines less one."""
    at = end
    for _ in range(lines):
        at = text.rfind(b"\n", 0, at)
        if at < 0:
            return 0
    return at + 1


def _end_of_line(text: bytes, at: int, stop: int) -> int:
    return text.find(b"\n", at, stop) + 1 or stop


def _before(window: _SearchWindow, start: int, context: int) -> tuple[Line, ...]:
    found: list[Line] = []
    while len(found) < context and start > 0:
        begin = window.text.rfind(b"\n", 0, start - 1) + 1
        found.append(Line(window.offset + begin, window.text[begin:start]))
        start = begin
    return tuple(reversed(found))


def _after(window: _SearchWindow, stop: int, context: int) -> tuple[Line, ...]:
    found: list[Line] = []
    while len(found) < context and stop < len(window.text):
        end = _end_of_line(window.text, stop, len(window.text))
        found.append(Line(window.offset + stop, window.text[stop:end]))
        stop = end
    return tuple(found)

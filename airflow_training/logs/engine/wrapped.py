"""Records that the library rich has wrapped at the width of a terminal, as the one line that they were. Pure.

It writes a column of times, one of levels, and the message in a third, whose lines go on below its first. Only records
about training are joined: a traceback is read line by line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["JoinedRecords", "join_wrapped", "may_wrap"]

_INDENTED = b"\n         "
"""In every such record; quick to look for."""
_HEAD = re.compile(rb"(?m)^(?:\[\d[\d/:., T-]{3,30}\] {1,4}| {9,32})?INFO {1,9}(?=[^\s])")
_LEVEL = b"INFO"
"""Of every record about training; ends in a rare letter, so that it is quick to look for."""
_TRAINING = re.compile(rb"(?i)step|epoch|iter|loss|batch")
_PLACE = re.compile(rb"  [\w./-]{1,80}\.py:\d{1,6} {0,40}$")
"""The fourth column: where in which file."""
_OTHER = (b"Traceback", b'File "')
_MOST_LINES = 12


class JoinedRecords(NamedTuple):
    """What was joined of a block."""

    size: int
    """Bytes that can be looked at: the last record may go on behind them."""
    ends: tuple[int, ...] = ()
    """Where line ends stood that are blanks now."""


class _Record(NamedTuple):
    start: int
    message: int
    ends: tuple[int, ...]
    """Line ends in it, and the one behind it if that is known."""
    closed: bool


def may_wrap(block: bytearray, size: int) -> bool:
    """Return whether there may be such records in a log with `block[:size]`."""
    return block.find(_LEVEL, 0, size) >= 0


def join_wrapped(block: bytearray, size: int, *, complete: bool) -> JoinedRecords:
    """Make one line of each record in `block[:size]`, in place and of the same length; `complete`: nothing follows."""
    ends: list[int] = []
    for record in _records(block, size):
        if not record.closed and not complete:
            full = record.start == 0 and size == len(block)  # nothing more could be read behind it
            return JoinedRecords(size if full else record.start, tuple(ends))
        first = record.ends[0] if record.ends else size
        if len(record.ends) > 1 and _is_training(block, record):
            place = _PLACE.search(block, record.message, first)
            if place is not None:
                block[place.start() : first] = b" " * (first - place.start())
            for end in record.ends[:-1]:
                block[end] = 32
            ends += record.ends[:-1]
    return JoinedRecords(size, tuple(ends))


def _ends_with_head(block: bytearray, size: int) -> bool:
    """Return whether the last line may be the first one of a record that goes on."""
    end = block.rfind(b"\n", 0, size)
    if block[end + 1 : size].strip(b" "):
        return False
    start = block.rfind(b"\n", 0, max(0, end)) + 1
    return _HEAD.match(block, start, size) is not None


def _records(block: bytearray, size: int) -> Iterator[_Record]:
    """Yield the records that go on in an indented line, found from there: most logs have none."""
    at = block.find(_INDENTED, 0, size)
    while at >= 0:
        head = _HEAD.match(block, block.rfind(b"\n", 0, at) + 1, at)
        if head is not None:
            record = _record(block, size, head.start(), head.end())
            yield record
            at = max(at, record.ends[-1] - 1)
        at = block.find(_INDENTED, at + 1, size)
    if _ends_with_head(block, size):
        start = block.rfind(b"\n", 0, block.rfind(b"\n", 0, size)) + 1
        yield _Record(start, start, (), closed=False)


def _record(block: bytearray, size: int, start: int, message: int) -> _Record:
    margin = b" " * (message - start)
    ends: list[int] = []
    end = block.find(b"\n", message, size)
    while end >= 0 and len(ends) < _MOST_LINES:
        ends.append(end)
        follows = block[end + 1 : min(end + 1 + len(margin), size)]
        if follows != margin[: len(follows)]:
            break
        end = block.find(b"\n", end + 1, size) if len(follows) == len(margin) else -1
    return _Record(start, message, tuple(ends), closed=end >= 0)


def _is_training(block: bytearray, record: _Record) -> bool:
    text = block[record.message : record.ends[-1]]
    return _TRAINING.search(text) is not None and not any(other in text for other in _OTHER)

"""The last lines of a log."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from airflow_training.logs.reading.source import BLOCK_BYTES, Source

__all__ = ["MOST_BYTES", "LogTail", "tail"]

MOST_BYTES = 16 << 20
"""More is not returned, however many lines are asked for."""
_ANY_BYTES = 64 << 10
_LINE_BYTES = 4 << 10
"""So much for each line that is asked for, and `_ANY_BYTES` besides: lines that are longer lose their beginning."""
_STEP_BYTES = 64 << 10


class LogTail(NamedTuple):
    """The end of a log. It begins at `next_offset - len(data)`."""

    data: bytes
    next_offset: int
    """Where to read on."""
    cut: bool = False
    """The lines have more bytes: their beginning is left out."""


def tail(source: Source, lines: int) -> LogTail:
    """Return the last `lines` lines as of now; a line that has no end yet counts as one.

    A log whose size is not known (compressed, a live instance) is read from its beginning.
    """
    size, most = source.size(), min(MOST_BYTES, _ANY_BYTES + lines * _LINE_BYTES)
    return _forward(source, lines, most) if size is None else _backward(source, lines, size, most)


def _backward(source: Source, lines: int, size: int, most: int) -> LogTail:
    blocks: deque[bytes] = deque()
    start, stop = size, max(0, size - most)
    wanted = lines + 1
    """Line ends to see: the one that ends the line before the first, and the last byte's."""
    while start > stop and wanted > 0:
        step = max(stop, start - _STEP_BYTES)
        data = _all_of(source, step, start)
        wanted -= data.count(b"\n")
        blocks.appendleft(data)
        start = step
    return _cut(b"".join(blocks), lines, most, end=size, begun=start == 0)


def _all_of(source: Source, start: int, stop: int) -> bytes:
    """Return a stretch that a source may give in pieces."""
    found = source.read(start, stop - start).data
    while found and len(found) < stop - start:
        more = source.read(start + len(found), stop - start - len(found)).data
        if not more:
            break
        found += more
    return found


def _forward(source: Source, lines: int, most: int) -> LogTail:
    blocks: deque[bytes] = deque()
    ends = held = offset = 0
    begun = True
    while True:
        part = source.read(offset, BLOCK_BYTES)
        offset = part.next_offset
        if part.data:
            blocks.append(part.data)
            ends += part.data.count(b"\n")
            held += len(part.data)
        while blocks and (held - len(blocks[0]) > most or ends - blocks[0].count(b"\n") > lines):
            first = blocks.popleft()
            ends -= first.count(b"\n")
            held -= len(first)
            begun = False
        if part.end or not part.data:
            return _cut(b"".join(blocks), lines, most, end=offset, begun=begun)


def _cut(text: bytes, lines: int, most: int, *, end: int, begun: bool) -> LogTail:
    """Return the last lines of a text. `begun`: the log has nothing before it."""
    at = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        at = text.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            break
    kept = text[at + 1 :] if lines else b""
    cut = len(kept) > most or (bool(lines) and at < 0 and not begun)
    return LogTail(_whole_characters(kept[-most:]) if cut else kept, end, cut)


def _whole_characters(text: bytes) -> bytes:
    """Return a text without what is left of a character that was cut through."""
    at = 0
    while at < min(3, len(text)) and text[at] & 0xC0 == 0x80:
        at += 1
    return text[at:]

"""The last lines of a log."""

from __future__ import annotations

from collections import deque

from airflow_training.logs.reading.source import BLOCK_BYTES, LogSlice, Source

__all__ = ["MOST_BYTES", "tail"]

MOST_BYTES = 16 << 20
"""More is not returned, however long the lines are."""
_STEP_BYTES = 64 << 10


def tail(source: Source, lines: int) -> LogSlice:
    """Return the last `lines` lines as of now; a line that has no end yet counts as one.

    A log whose size is not known (compressed, a live instance) is read from its beginning.
    """
    size = source.size()
    return _forward(source, lines) if size is None else _backward(source, lines, size)


def _backward(source: Source, lines: int, size: int) -> LogSlice:
    blocks: deque[bytes] = deque()
    start, stop = size, max(0, size - MOST_BYTES)
    wanted = lines + 1
    """Line ends to see: the one that ends the line before the first, and the last byte's."""
    while start > stop and wanted > 0:
        step = max(stop, start - _STEP_BYTES)
        data = _all_of(source, step, start)
        wanted -= data.count(b"\n")
        blocks.appendleft(data)
        start = step
    return _cut(b"".join(blocks), lines, size)


def _all_of(source: Source, start: int, stop: int) -> bytes:
    """Return a stretch that a source may give in pieces."""
    found = source.read(start, stop - start).data
    while found and len(found) < stop - start:
        more = source.read(start + len(found), stop - start - len(found)).data
        if not more:
            break
        found += more
    return found


def _forward(source: Source, lines: int) -> LogSlice:
    blocks: deque[bytes] = deque()
    ends = held = offset = 0
    while True:
        part = source.read(offset, BLOCK_BYTES)
        offset = part.next_offset
        if part.data:
            blocks.append(part.data)
            ends += part.data.count(b"\n")
            held += len(part.data)
        while blocks and (
            held - len(blocks[0]) > MOST_BYTES or ends - blocks[0].count(b"\n") > lines
        ):
            first = blocks.popleft()
            ends -= first.count(b"\n")
            held -= len(first)
        if part.end or not part.data:
            return _cut(b"".join(blocks), lines, offset)


def _cut(text: bytes, lines: int, end: int) -> LogSlice:
    at = len(text) - text.endswith(b"\n")
    for _ in range(lines):
        at = text.rfind(b"\n", 0, max(at, 0))
        if at < 0:
            break
    kept = text[at + 1 :] if lines else b""
    return LogSlice(kept[-MOST_BYTES:], end, end=True)

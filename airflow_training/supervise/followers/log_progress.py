"""How far the log of one instance was read, and the lines of it that are still needed. Pure."""

from __future__ import annotations

import re
from collections import deque
from typing import NamedTuple

from airflow_training.runtimes.port import Cursor, LogChunk
from airflow_training.state.store import LogPosition
from airflow_training.supervise.followers.log_ends import LogEnd, behind

__all__ = ["LogProgress"]

_CONTEXT_BYTES = 16 << 10
"""Of what was read, given along with the next piece: a value may belong to a step told before."""
_END = re.compile(rb"[\r\n]")


class _Chunk(NamedTuple):
    cursor: Cursor
    """Where it was read from."""
    offset: int
    """Of its first byte."""
    data: bytes


class LogProgress:
    """What is known of the log of one instance."""

    def __init__(self, stored: LogPosition | None) -> None:
        self.stored = stored
        self.position = stored
        """Of the attempt that is read now; None: of none yet."""
        self.chunks: deque[_Chunk] = deque()
        self.next = Cursor() if stored is None else Cursor(offset=stored.offset, token=stored.token)
        self.deaths = 0

    def begin(self, position: LogPosition) -> None:
        """Go over to another attempt."""
        self.position = position
        self.chunks.clear()
        self.next = Cursor()

    def add(self, chunk: LogChunk) -> None:
        """Take what was read next."""
        start = chunk.next.offset - len(chunk.data)
        if self.chunks and self.chunks[-1].offset + len(self.chunks[-1].data) != start:
            self.chunks.clear()  # the runtime did not keep what is between
        self.chunks.append(_Chunk(self.next, start, chunk.data))
        self.next = chunk.next

    def skip_to(self, end: LogEnd) -> int:
        """Take the end of a log as read next; return how many bytes are left out."""
        here = self.next.offset
        start = max(here, end.offset or 0)
        data = end.data[start - (end.offset or 0) :]
        cut = data.find(b"\n") + 1 if start > here else 0
        self._skip(start + cut, data[cut:])
        return start - here

    def skip_to_lines(self, end: LogEnd, known: bytes, *, done: int) -> bool:
        """Take the end of a log as read next of which nobody knows where it begins; return whether anything is left out.

        `known`: the last lines before `done`, which may be in it.
        """
        lines = end.data[end.data.find(b"\n") + 1 :]
        cut = behind(known, lines)
        self._skip(done, lines[cut or 0 :])
        return cut is None

    def _skip(self, offset: int, data: bytes) -> None:
        self.next = Cursor(offset=offset + len(data), token=self.next.token)
        self.chunks.clear()
        self.chunks.append(_Chunk(self.next, offset, data))

    def forget(self, done: int) -> None:
        """Keep the line that is not complete, and some context before it."""
        begin = done - _CONTEXT_BYTES
        while len(self.chunks) > 1 and self.chunks[1].offset <= begin:
            self.chunks.popleft()
        if self.chunks and self.chunks[0].offset < begin:
            cursor, offset, data = self.chunks[0]
            found = _END.search(data, begin - offset)
            cut = 0 if found is None else found.end()
            if 0 < cut <= done - offset:
                self.chunks[0] = _Chunk(cursor, offset + cut, data[cut:])

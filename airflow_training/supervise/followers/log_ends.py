"""The end of one attempt's log, through the runtime, without reading what is before it."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass

from airflow_training.runtimes.port import Cursor, InstanceRef, Runtime

__all__ = ["LogEnd", "behind", "read_end"]

_CHUNK_BYTES = 1 << 20
_MOST_CHUNKS = 256
"""Of a log whose cursors are no offsets, so that it has to be read from its beginning,"""
_THROUGH_SECONDS = 5.0
"""and how long that may take: its last lines, which were read before, say the most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnd:
    data: bytes
    offset: int | None
    """Of the first byte; 0: it is the whole log; None: it is none, and which is not known."""
    opaque: bool = False
    """The log cannot be read from an offset: its cursors are tokens."""


async def read_end(runtime: Runtime, ref: InstanceRef, *, limit: int) -> LogEnd:
    """Return the last `limit` bytes of an attempt's log as of now; raises RuntimeUnavailable."""
    chunk = await runtime.read_log(ref, Cursor(), limit=limit)
    if len(chunk.data) < limit and (chunk.end or not chunk.next.token):
        return LogEnd(data=chunk.data, offset=0)
    if chunk.next.token:
        return await _without_offsets(runtime, ref, limit=limit)
    size = await _size(runtime, ref, least=chunk.next.offset)
    chunk = await runtime.read_log(ref, Cursor(offset=size - limit), limit=limit)
    return LogEnd(data=chunk.data, offset=size - limit)


async def _size(runtime: Runtime, ref: InstanceRef, *, least: int) -> int:
    """Return the size of a log, found by trying: twice as far until nothing is there, then between."""

    async def has(offset: int) -> bool:
        return bool((await runtime.read_log(ref, Cursor(offset=offset), limit=1)).data)

    low, high = least, 2 * least
    while await has(high):
        low, high = high + 1, 2 * high
    while low < high:  # bytes before `low` are there, from `high` on there are none
        middle = (low + high) // 2
        if await has(middle):
            low = middle + 1
        else:
            high = middle
    return low


async def _without_offsets(runtime: Runtime, ref: InstanceRef, *, limit: int) -> LogEnd:
    """Return the end of a log whose cursors are opaque: as much as was asked for if that can be had in time."""
    last = await runtime.tail_log(ref, limit=limit)
    with contextlib.suppress(asyncio.TimeoutError):
        whole = await asyncio.wait_for(_through(runtime, ref, limit=limit), _THROUGH_SECONDS)
        if whole is not None:
            return whole
    return LogEnd(data=last, offset=None, opaque=True)


async def _through(runtime: Runtime, ref: InstanceRef, *, limit: int) -> LogEnd | None:
    """Return the end of a log, read from its beginning; None for one that is too long."""
    cursor, kept, read = Cursor(), b"", 0
    for _ in range(_MOST_CHUNKS):
        chunk = await runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
        read += len(chunk.data)
        kept = (kept + chunk.data)[-limit:]
        if chunk.end or not chunk.data:
            return LogEnd(data=kept, offset=read - len(kept), opaque=True)
        cursor = chunk.next
    return None


def behind(known: bytes, data: bytes) -> int | None:
    """Return where in the end of a log that follows which comes behind `known`; None: it does not touch it.

    Both begin with a line, and `known` ends with one.
    """
    found = data.rfind(known) if known else -1
    if found >= 0:
        return found + len(known)
    start = known.find(b"\n") + 1
    while 0 < start < len(known):
        if data.startswith(known[start:]):
            return len(known) - start
        start = known.find(b"\n", start) + 1
    return None

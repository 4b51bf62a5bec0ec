"""Logs of instances: live from the API server, and for good in an archive.

The API server counts no bytes, so a live log has an opaque token: the time stamp of the line that
was read last, and how much from there on was read. Offsets are exact in the archive, which is
written when an attempt has ended and before its pod goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api, ApiError, Invalid, NotFound
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk

__all__ = ["LogArchive", "StampedReader", "followed", "read_live"]

log = logging.getLogger(__name__)

_SOURCES_AT_ONCE = 192
"""Logs that are followed at the same time: each is one of our connections, and a tail in memory."""
_OPENING_SECONDS = 3.0
"""How long the end of a pod waits for the first bytes of its log, once there is room to read it."""
_SILENT_SECONDS = 60.0
"""A log that says nothing for so long is asked for again: its connection may be dead."""
_BROKEN_IN_A_ROW = 5
_PAUSE_SECONDS = 1.0
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|[+-]\d\d:\d\d)")
_WINDOW_BYTES = 1 << 20
"""Read beyond what was asked for: lines of the same second, and the time stamps."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the archive says of one attempt."""

    start: int
    """Offset in the whole log where the archived part begins."""
    size: int
    """Bytes of the whole log."""


class LogArchive:
    """Logs of ended attempts below one address of any fsspec file system.

    Keyed `<run uid>/<role>-<index>/<epoch>.<job attempt>.<attempt>.log`, with a small `.json`
    beside it that is written last: without it the log is not complete.
    """

    def __init__(self, uri: str, *, tail_bytes: int) -> None:
        """`tail_bytes`: how much of the end is kept; 0 keeps all."""
        self._uri = uri.rstrip("/")
        self._tail_bytes = tail_bytes
        self._slots: dict[asyncio.AbstractEventLoop, asyncio.Semaphore] = {}

    async def has(self, ref: InstanceRef) -> bool:
        """Return whether the attempt's log is here."""
        return await asyncio.to_thread(self._about, ref) is not None

    async def keep(
        self,
        api: Api,
        pod: str,
        container: str,
        ref: InstanceRef,
        *,
        reached: asyncio.Event | None = None,
        begins: bytes = b"",
        follow: bool = True,
    ) -> None:
        """Archive the log of an attempt, following it to its end where it has not ended yet.

        `begins`: the line before which everything is of earlier attempts; empty: nothing is.
        `follow`: False for an attempt that is over though its container lives.

        `reached` is set once the log is being read, or will not be: then its pod may go. Where
        more pods end than logs can be read at once, they take turns.
        What cannot be archived is said in our own log: it never keeps an instance from ending.
        """
        slots = self._slots.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(_SOURCES_AT_ONCE)
        )
        opening: asyncio.TimerHandle | None = None
        try:
            async with slots:
                if reached is not None:
                    loop = asyncio.get_running_loop()
                    opening = loop.call_later(_OPENING_SECONDS, reached.set)
                if not await self.has(ref):
                    read = followed if follow else printed
                    blocks = read(api, ref.run.namespace, pod, container)
                    if begins:
                        blocks = from_line(blocks, begins)
                    write = self._write_tail if self._tail_bytes else self._write
                    await write(ref, _noting(blocks, reached))
        except (Invalid, NotFound):
            pass  # the container never started, or its pod is gone
        except (ApiError, RuntimeUnavailable, OSError) as error:
            log.warning("the log of %s could not be archived: %s", pod, error)
        finally:
            if opening is not None:
                opening.cancel()
            if reached is not None:
                reached.set()

    async def read(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk | None:
        """Return bytes of an archived log; None where the attempt is not here."""
        return await asyncio.to_thread(self._read, ref, cursor, limit)

    async def _write(self, ref: InstanceRef, blocks: AsyncIterator[bytes]) -> None:
        size = 0
        with contextlib.closing(await asyncio.to_thread(self._open_for_writing, ref)) as target:
            async for block in blocks:
                size += len(block)
                await asyncio.to_thread(target.write, block)
        await asyncio.to_thread(self._write_about, ref, _Kept(start=0, size=size))

    async def _write_tail(self, ref: InstanceRef, blocks: AsyncIterator[bytes]) -> None:
        size, held = 0, bytearray()
        async for block in blocks:
            size += len(block)
            held += block
            del held[: max(0, len(held) - self._tail_bytes)]
        if await self.has(ref):
            return  # somebody else has read the same log, and perhaps to a later end
        with contextlib.closing(await asyncio.to_thread(self._open_for_writing, ref)) as target:
            await asyncio.to_thread(target.write, bytes(held))
        kept = _Kept(start=size - len(held), size=size)
        await asyncio.to_thread(self._write_about, ref, kept)

    def _read(self, ref: InstanceRef, cursor: Cursor, limit: int) -> LogChunk | None:
        about = self._about(ref)
        if about is None:
            return None
        position = max(cursor.offset, about.start)
        with _fsspec().open(self._path(ref, "log"), "rb") as file:
            file.seek(position - about.start)
            data: bytes = file.read(limit)
        position += len(data)
        return LogChunk(data=data, next=Cursor(offset=position), end=position >= about.size)

    def _about(self, ref: InstanceRef) -> _Kept | None:
        try:
            with _fsspec().open(self._path(ref, "json"), "rb") as file:
                known = json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):  # or it is being written just now
            return None
        return _Kept(start=known["start"], size=known["size"])

    def _write_about(self, ref: InstanceRef, kept: _Kept) -> None:
        with _fsspec().open(self._path(ref, "json"), "w") as file:
            json.dump({"start": kept.start, "size": kept.size}, file)

    def _open_for_writing(self, ref: InstanceRef) -> Any:
        return _fsspec().open(self._path(ref, "log"), "wb", auto_mkdir=True).open()

    def _path(self, ref: InstanceRef, ending: str) -> str:
        attempt = f"{ref.epoch}.{ref.job_attempt}.{ref.attempt}"
        return f"{self._uri}/{ref.run.uid}/{ref.role}-{ref.index}/{attempt}.{ending}"


async def from_line(blocks: AsyncIterator[bytes], line: bytes) -> AsyncIterator[bytes]:
    """Yield a log from this line on; what is empty says that the log is open."""
    wanted, held, begun = line + b"\n", b"", False
    async for block in blocks:
        if begun:
            yield block
            continue
        held += block
        place = held.find(wanted)
        begun = place >= 0
        yield held[place:] if begun else b""
        held = b"" if begun else held[-len(wanted) :]


async def printed(api: Api, namespace: str, pod: str, container: str) -> AsyncIterator[bytes]:
    """Yield what a living container has printed so far."""
    yield await api.log(namespace, pod, container=container)


async def _noting(
    blocks: AsyncIterator[bytes], reached: asyncio.Event | None
) -> AsyncIterator[bytes]:
    async for block in blocks:
        if reached is not None:
            reached.set()
        yield block


async def followed(api: Api, namespace: str, pod: str, container: str) -> AsyncIterator[bytes]:
    """Yield a container's whole log until it has ended, across connections that break or fall silent.

    The first thing that is yielded is empty: the log is open. Raises Invalid and NotFound where it
    never was, and RuntimeUnavailable after several tries in a row that brought nothing.
    """
    reader = StampedReader()
    opened, broken = False, 0
    while True:
        blocks = api.follow_log(
            namespace,
            pod,
            container=container,
            since_time=reader.reopen(),
            silent_seconds=_SILENT_SECONDS,
        )
        try:
            async for block in blocks:
                broken = 0
                fresh = reader.take(block)
                if fresh or not opened:
                    opened = True
                    yield fresh
        except (Invalid, NotFound):
            if opened:
                return  # it went while nobody was connected: what was read is all there is
            raise
        except RuntimeUnavailable as error:
            broken += 1
            if broken == _BROKEN_IN_A_ROW:
                text = f"the log of {pod} breaks off again and again: {error}"
                raise RuntimeUnavailable(text) from error
            log.debug("following the log of %s again: %s", pod, error)
        else:
            return
        await asyncio.sleep(_PAUSE_SECONDS)


class StampedReader:
    """Takes the content out of lines that begin with time stamps, once each, across reopenings.

    The server can start a log at a whole second only. So what has been taken of the newest second
    is counted in bytes, and left out when that second comes again.
    """

    def __init__(self) -> None:
        self._second, self._zone = "", ""
        self._taken = 0
        """Bytes taken of the newest second, over all openings."""
        self._seen = 0
        """The same of this opening only."""
        self._rest = b""
        """The beginning of a line whose time stamp is not complete."""
        self._inside = False
        """In the middle of a line."""
        self._counts = False
        """The line is of the newest second."""

    def reopen(self) -> str:
        """Return the time from which the log is to be sent now; empty: from its beginning."""
        self._seen, self._rest, self._inside = 0, b"", False
        return f"{self._second}{self._zone}"

    def take(self, block: bytes) -> bytes:
        """Return what is new in the next bytes of the log."""
        fresh = bytearray()
        text, at = self._rest + block, 0
        while at < len(text):
            if not self._inside:
                blank = text.find(b" ", at)
                if blank < 0:
                    break
                self._begin(text[at:blank].decode("ascii", errors="replace"))
                at = blank + 1
            end = text.find(b"\n", at) + 1 or len(text)
            fresh += self._new(text[at:end])
            self._inside = text[end - 1 : end] != b"\n"
            at = end
        self._rest = text[at:]
        return bytes(fresh)

    def _begin(self, stamp: str) -> None:
        self._inside = True
        found = _STAMP.fullmatch(stamp)
        if found is not None and found[1] > self._second:
            self._second, self._zone = found[1], found[2]
            self._taken = self._seen = 0
        # two streams of one container may come a little out of order
        self._counts = found is not None and found[1] == self._second

    def _new(self, content: bytes) -> bytes:
        if not self._counts:
            return content
        known = max(0, self._taken - self._seen)
        self._seen += len(content)
        self._taken = max(self._taken, self._seen)
        return content[known:]


async def read_live(
    api: Api,
    namespace: str,
    pod: str,
    container: str,
    cursor: Cursor,
    *,
    limit: int,
    begins: bytes = b"",
) -> LogChunk:
    """Return what a running container printed after `cursor`; at most `limit` bytes.

    `begins`: the line before which everything is of earlier attempts; empty: nothing is.
    """
    if begins and not cursor.token:
        token = await _token_of(api, namespace, pod, container, line=begins)
        if not token:
            return LogChunk(data=b"", next=cursor, end=False)
        cursor = Cursor(offset=cursor.offset, token=token)
    since, _, skipped = cursor.token.partition("|")
    size = limit + _WINDOW_BYTES
    while True:
        try:
            text = await api.log(
                namespace,
                pod,
                container=container,
                timestamps=True,
                since_time=since,
                limit_bytes=size,
            )
        except (Invalid, NotFound):
            return LogChunk(data=b"", next=cursor, end=False)
        chunk = _cut(text, cursor, since=since, skip=int(skipped or 0), limit=limit)
        if chunk.data or len(text) < size:
            return chunk
        size *= 4  # nothing new: even more was printed within one second


async def _token_of(api: Api, namespace: str, pod: str, container: str, *, line: bytes) -> str:
    """Return the place of a line in a running container's log; "" where it is not there yet."""
    try:
        text = await api.log(namespace, pod, container=container, timestamps=True)
    except (Invalid, NotFound):
        return ""
    stamp, before = "", 0
    for each in io.BytesIO(text):
        at, _, content = each.partition(b" ")
        moment = at.decode("ascii", errors="replace")
        if moment != stamp:
            stamp, before = moment, 0
        printed_last = content.rstrip(b"\n")
        if printed_last.endswith(line):
            return f"{stamp}|{before + len(printed_last) - len(line)}"
        before += len(content)
    return ""


def _cut(text: bytes, cursor: Cursor, *, since: str, skip: int, limit: int) -> LogChunk:
    """Take what is new from lines that begin with time stamps; the server's start is a second's.

    `skip`: bytes read already of the lines stamped `since`, and of those after them. The text may
    end anywhere, also within a time stamp.
    """
    taken = bytearray()
    stamp, before = since, 0
    for line in io.BytesIO(text):  # only a newline ends a line: progress bars print b"\r"
        at, blank, content = line.partition(b" ")
        if not blank:
            continue
        moment = at.decode("ascii", errors="replace")
        if _key(moment) < _key(since):
            continue
        if moment != stamp:
            stamp, before, skip = moment, 0, skip if moment == since else 0
        fresh = content[skip:]
        skip = max(0, skip - len(content))
        room = limit - len(taken)
        taken += fresh[:room]
        before += len(content) - max(0, len(fresh) - room)
        if len(fresh) > room:
            break
    data = bytes(taken)
    return LogChunk(
        data=data,
        next=Cursor(offset=cursor.offset + len(data), token=f"{stamp}|{before}" if stamp else ""),
        end=False,
    )


def _key(moment: str) -> tuple[str, str]:
    """Return what orders RFC 3339 time stamps in UTC: their fractions have up to nine digits."""
    whole, _, fraction = moment.rstrip("Z").partition(".")
    return whole, fraction.ljust(9, "0")


def _fsspec() -> Any:
    return import_module("fsspec")  # without types, and slow to import

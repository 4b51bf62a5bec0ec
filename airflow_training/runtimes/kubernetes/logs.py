"""Logs of instances: live from the API server, and for good in an archive.

The API server counts no bytes, so a live log has an opaque token: the time stamp of the line that
was read last, and how much from there on was read. Offsets are exact in the archive, which is
written when an attempt has ended and before its pod goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api, ApiError, Invalid, NotFound
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk

__all__ = ["LogArchive", "read_live"]

log = logging.getLogger(__name__)

_SOURCES_AT_ONCE = 64
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
    ) -> None:
        """Archive the log of an attempt, following it to its end where it has not ended yet.

        `reached` is set once the log is being read, or will not be: then its pod may go.
        What cannot be archived is said in our own log: it never keeps an instance from ending.
        """
        slots = self._slots.setdefault(
            asyncio.get_running_loop(), asyncio.Semaphore(_SOURCES_AT_ONCE)
        )
        try:
            async with slots:
                if not await self.has(ref):
                    blocks = api.log_blocks(
                        ref.run.namespace, pod, container=container, follow=True
                    )
                    await self._write(ref, _noting(blocks, reached))
        except (Invalid, NotFound):
            pass  # the container never started, or its pod is gone
        except (ApiError, RuntimeUnavailable, OSError) as error:
            log.warning("the log of %s could not be archived: %s", pod, error)
        finally:
            if reached is not None:
                reached.set()

    async def read(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk | None:
        """Return bytes of an archived log; None where the attempt is not here."""
        return await asyncio.to_thread(self._read, ref, cursor, limit)

    async def _write(self, ref: InstanceRef, blocks: AsyncIterator[bytes]) -> None:
        size, held = 0, bytearray()
        target = await asyncio.to_thread(self._open_for_writing, ref)
        with contextlib.closing(target):
            async for block in blocks:
                size += len(block)
                if not self._tail_bytes:
                    await asyncio.to_thread(target.write, block)
                    continue
                held += block
                if len(held) > 2 * self._tail_bytes:
                    del held[: -self._tail_bytes]
            if self._tail_bytes:
                del held[: max(0, len(held) - self._tail_bytes)]
                await asyncio.to_thread(target.write, bytes(held))
        start = size - len(held) if self._tail_bytes else 0
        await asyncio.to_thread(self._write_about, ref, _Kept(start=start, size=size))

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
        except FileNotFoundError:
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


async def _noting(
    blocks: AsyncIterator[bytes], reached: asyncio.Event | None
) -> AsyncIterator[bytes]:
    async for block in blocks:
        if reached is not None:
            reached.set()
        yield block


async def read_live(
    api: Api, namespace: str, pod: str, container: str, cursor: Cursor, *, limit: int
) -> LogChunk:
    """Return what a running container printed after `cursor`; at most `limit` bytes."""
    since, _, skipped = cursor.token.partition("|")
    try:
        text = await api.log(namespace, pod, container=container, timestamps=True, since_time=since)
    except (Invalid, NotFound):
        return LogChunk(data=b"", next=cursor, end=False)
    return _cut(text, cursor, since=since, skip=int(skipped or 0), limit=limit)


def _cut(text: bytes, cursor: Cursor, *, since: str, skip: int, limit: int) -> LogChunk:
    """Take what is new from lines that begin with time stamps; the server's start is a second's.

    `skip`: bytes read already of the lines stamped `since`, and of those after them.
    """
    taken = bytearray()
    stamp, before = since, 0
    for line in text.splitlines(keepends=True):
        at, _, content = line.partition(b" ")
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

"""Logs of instances: live from the API server, and for good in an archive.

The API server counts no bytes, so a live log has an opaque token, see `timestamped_lines`. Offsets are exact in
the archive, which is written when an attempt has ended and before its pod goes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Invalid, NotFound
from airflow_training.runtimes.kubernetes.timestamped_lines import (
    FILE_SECONDS,
    GAP,
    Piece,
    StampedReader,
    epoch,
    gap_line,
    unread_line,
)
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk

__all__ = [
    "KeyedThrottle",
    "LogArchive",
    "LogCut",
    "PodLogStream",
    "Read",
    "begun_late",
    "followed",
    "read_live",
]

log = logging.getLogger(__name__)

_OPENING_SECONDS = 10.0
"""How long the end of a pod waits until its log is open, once there is room to read it."""
_SILENT_SECONDS = 1800.0
"""A log that says nothing for so long is asked for again; that a connection is dead its own probes tell."""
_BROKEN_IN_A_ROW = 8
_PAUSE_SECONDS = 0.2
"""Before a log is followed again whose connection broke: its pod may be about to go."""
_QUIET_SECONDS = 60.0
"""A program that prints nothing for longer after its start may have printed before anybody looked."""
_PAUSE_OF_LINES_SECONDS = 2.0
_HELD_UP_BYTES = 64 << 10
"""Fewer than buffers on the way hold of a log whose files are full within seconds."""
_WINDOW_BYTES = 1 << 20
"""Read beyond what was asked for: lines of the same second, and the time stamps."""


@dataclass(frozen=True, slots=True)
class _ArchiveEntry:
    """What the archive says of one attempt."""

    start: int
    """Offset in the whole log where the archived part begins."""
    size: int
    """Bytes of the whole log."""
    missing: str = ""
    """What of it could not be kept, and why."""

    def is_more_than(self, other: _ArchiveEntry) -> bool:
        """Return whether it may replace another one of the same log."""
        if not (self.missing and other.missing):
            return bool(other.missing)
        return (self.size, -self.start) > (other.size, -other.start)


class LogCut(Exception):
    """A pod went while nobody was connected: the end of its log may be missing."""


class PodLogStream(Protocol):
    """The log of one pod, from its beginning to its end."""

    dropped: int
    """Bytes of its beginning that nobody has any more; known once `blocks` has begun."""
    cut: str
    """Why its end may be missing; known once `blocks` has ended."""

    def blocks(self) -> AsyncIterator[bytes]:
        """Yield it, as it comes; first something empty: the log is open."""


class LogArchive:
    """Logs of ended attempts below one address of any fsspec file system.

    Keyed `<run uid>/<role>-<index>/<epoch>.<job attempt>.<attempt>.log`, with a small `.json`
    beside it that is written last: without it the log is not complete. What is here of a log is
    replaced by more of it only, which is written beside it first.
    """

    def __init__(self, uri: str, *, tail_bytes: int) -> None:
        """`tail_bytes`: how much of the end is kept; 0 keeps all."""
        self._uri = uri.rstrip("/")
        self.tail_bytes = tail_bytes
        self._lost = 0
        """Logs that could not be archived since one was."""

    async def has(self, ref: InstanceRef) -> bool:
        """Return whether the attempt's log is here, as far as anybody had it."""
        about = await asyncio.to_thread(self._about, ref)
        return about is not None and not about.missing

    @property
    def is_failing(self) -> bool:
        """Return whether the last log could not be archived."""
        return self._lost > 0

    async def keep(
        self,
        ref: InstanceRef,
        whole: PodLogStream,
        *,
        reached: asyncio.Event | None = None,
        begins: bytes = b"",
    ) -> None:
        """Archive the log of an attempt, to its end where it has not ended yet.

        `begins`: the line before which everything is of earlier attempts; empty: nothing is.

        `reached` is set once the log is being read, or will not be: then its pod may go.
        What cannot be archived is said in our own log, and beside what could be: it never keeps an
        instance from ending.
        """
        opening: asyncio.TimerHandle | None = None
        try:
            if reached is not None:
                loop = asyncio.get_running_loop()
                opening = loop.call_later(_OPENING_SECONDS, reached.set)
            if not await self.has(ref):
                blocks = whole.blocks()
                if begins:
                    blocks = from_line(blocks, begins)
                write = self._write_tail if self.tail_bytes else self._write
                await write(ref, _noting(blocks, reached), whole)
                self._can_be_written()
        except NotFound:
            pass  # its pod is gone
        except Invalid:  # the container never started
            if reached is None:
                await self._note_nothing(ref)
        except (ApiError, RuntimeUnavailable, OSError) as error:
            self._cannot_be_written(ref, error)
            await self._note_nothing(ref, missing=str(error))
        finally:
            if opening is not None:
                opening.cancel()
            if reached is not None:
                reached.set()

    def _cannot_be_written(self, ref: InstanceRef, error: Exception) -> None:
        """Say so once, however many logs there are; those after are counted."""
        self._lost += 1
        say = log.warning if self._lost == 1 else log.debug
        say("the log of %s could not be archived: %s", ref.key, error)

    async def _note_nothing(self, ref: InstanceRef, *, missing: str = "") -> None:
        """Say of a log of which nothing is here that it is empty, or why it is missing."""
        with contextlib.suppress(OSError):  # then nothing can be kept here, and nothing is
            known = await asyncio.to_thread(self._about, ref)
            if known is None:
                await asyncio.to_thread(
                    self._write_about, ref, _ArchiveEntry(0, 0, missing=missing)
                )

    def _can_be_written(self) -> None:
        if self._lost:
            log.warning("logs are archived again; %d could not be", self._lost)
        self._lost = 0

    async def read(self, ref: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk | None:
        """Return bytes of an archived log; None where the attempt is not here."""
        return await asyncio.to_thread(self._read, ref, cursor, limit)

    async def tail(self, ref: InstanceRef, *, limit: int) -> bytes:
        """Return the last bytes of an archived log; empty where the attempt is not here."""
        about = await asyncio.to_thread(self._about, ref)
        if about is None:
            return b""
        end = await self.read(ref, Cursor(offset=max(0, about.size - limit)), limit=limit)
        return b"" if end is None else end.data

    async def _write(
        self, ref: InstanceRef, blocks: AsyncIterator[bytes], whole: PodLogStream
    ) -> None:
        size, broken = 0, ""
        async with self._half(ref) as half:
            with contextlib.closing(await asyncio.to_thread(_open_for_writing, half)) as target:
                try:
                    async for block in blocks:
                        size += len(block)
                        await asyncio.to_thread(target.write, block)
                except (ApiError, RuntimeUnavailable) as error:
                    if not size:
                        raise
                    broken = str(error)
            kept = _ArchiveEntry(whole.dropped, whole.dropped + size, missing=broken or whole.cut)
            await asyncio.to_thread(self._replace, ref, half, kept)

    async def _write_tail(
        self, ref: InstanceRef, blocks: AsyncIterator[bytes], whole: PodLogStream
    ) -> None:
        size, held, broken = 0, bytearray(), ""
        try:
            async for block in blocks:
                size += len(block)
                held += block
                del held[: max(0, len(held) - self.tail_bytes)]
        except (ApiError, RuntimeUnavailable) as error:
            if not size:
                raise
            broken = str(error)
        size += whole.dropped
        kept = _ArchiveEntry(size - len(held), size, missing=broken or whole.cut)
        async with self._half(ref) as half:
            with contextlib.closing(await asyncio.to_thread(_open_for_writing, half)) as target:
                await asyncio.to_thread(target.write, bytes(held))
            await asyncio.to_thread(self._replace, ref, half, kept)

    @contextlib.asynccontextmanager
    async def _half(self, ref: InstanceRef) -> AsyncIterator[str]:
        """Give a place beside the log to write it to: another process may write the same one."""
        half = self._path(ref, f"{uuid.uuid4().hex}.half")
        try:
            yield half
        except BaseException:
            await asyncio.to_thread(_remove, half)
            raise

    def _replace(self, ref: InstanceRef, half: str, kept: _ArchiveEntry) -> None:
        """Let what was written be the log, unless somebody has kept as much of it meanwhile."""
        known = self._about(ref)
        if known is not None and not kept.is_more_than(known):
            _remove(half)
            return
        system, path = _fsspec().url_to_fs(self._path(ref, "log"))
        system.mv(half, path)
        self._write_about(ref, kept)

    def _read(self, ref: InstanceRef, cursor: Cursor, limit: int) -> LogChunk | None:
        about = self._about(ref)
        if about is None:
            return None
        position = max(cursor.offset, about.start)
        if about.size == about.start:
            return LogChunk(data=b"", next=cursor, end=True, missing=about.missing)
        with _fsspec().open(self._path(ref, "log"), "rb") as file:
            file.seek(position - about.start)
            data: bytes = file.read(limit)
        position += len(data)
        # nobody waits for what was noted and is not there
        end, place = position >= about.size or len(data) < limit, Cursor(offset=position)
        missing = about.missing or (
            "the end of its archived file" if position < about.size and end else ""
        )
        return LogChunk(data=data, next=place, end=end, missing=missing)

    async def delete(self, uid: str) -> None:
        """Delete the logs of a run; raises OSError where something of them stays."""
        await asyncio.to_thread(_remove_folder, f"{self._uri}/{uid}")

    def _about(self, ref: InstanceRef) -> _ArchiveEntry | None:
        try:
            with _fsspec().open(self._path(ref, "json"), "rb") as file:
                known = json.load(file)
        except (FileNotFoundError, json.JSONDecodeError):  # or it is being written just now
            return None
        return _ArchiveEntry(known["start"], known["size"], missing=known.get("missing", ""))

    def _write_about(self, ref: InstanceRef, kept: _ArchiveEntry) -> None:
        about: dict[str, int | str] = {"start": kept.start, "size": kept.size}
        if kept.missing:
            about["missing"] = kept.missing
        with _fsspec().open(self._path(ref, "json"), "w", auto_mkdir=True) as file:
            json.dump(about, file)

    def _path(self, ref: InstanceRef, ending: str) -> str:
        attempt = f"{ref.epoch}.{ref.job_attempt}.{ref.attempt}"
        return f"{self._uri}/{ref.run.uid}/{ref.key}/{attempt}.{ending}"


def _open_for_writing(path: str) -> Any:
    return _fsspec().open(path, "wb", auto_mkdir=True).open()


def _remove_folder(uri: str) -> None:
    system, path = _fsspec().url_to_fs(uri)
    with contextlib.suppress(FileNotFoundError):
        system.rm(path, recursive=True)


def _remove(uri: str) -> None:
    with contextlib.suppress(OSError):  # it may not be there, and is of no use to anybody
        system, path = _fsspec().url_to_fs(uri)
        system.rm_file(path)


class KeyedThrottle:
    """What is done again for the same key after a while only, however often somebody asks."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._last: dict[Hashable, float] = {}

    def is_due(self, key: Hashable, *, now: float) -> bool:
        """Return whether it is to be done now; then not again for some time."""
        self._last = {each: at for each, at in self._last.items() if now < at + self._seconds}
        return key not in self._last and self._last.setdefault(key, now) == now


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


async def _noting(
    blocks: AsyncIterator[bytes], reached: asyncio.Event | None
) -> AsyncIterator[bytes]:
    """Yield a log; set `reached` once it is open, however much somebody had of it before."""
    async for block in blocks:
        if reached is not None and not block:
            reached.set()
        yield block


async def followed(
    api: Api, namespace: str, pod: str, container: str, *, reader: StampedReader
) -> AsyncIterator[Sequence[Piece]]:
    """Yield what is new in a container's log until it has ended, across connections that break.

    The first thing that is yielded is empty: the log is open. Raises Invalid and NotFound where it
    never was, LogCut where its pod went while nobody was connected, and RuntimeUnavailable after
    several tries in a row that brought nothing.
    """
    opened, broken = False, 0
    cut: Exception | None = None
    while True:
        blocks = api.follow_log(
            namespace,
            pod,
            container=container,
            since_time=reader.reopen(),
            silent_seconds=_SILENT_SECONDS,
        )
        lag = _Lag()
        try:
            async for block in blocks:
                broken = 0
                pieces = lag.marked(reader.take(block), now=time.time())
                if pieces or not opened:
                    opened = True
                    yield pieces
        except (Invalid, NotFound) as error:
            if opened:
                why = f"its connection broke ({cut}), and its pod was gone when it could be read again"
                raise LogCut(why) from error
            raise
        except RuntimeUnavailable as error:
            cut = error
            broken += 1
            if broken == _BROKEN_IN_A_ROW:
                text = f"the log of {pod} breaks off again and again: {error}"
                raise RuntimeUnavailable(text) from error
            log.debug("following the log of %s again: %s", pod, error)
        else:
            return
        await asyncio.sleep(_PAUSE_SECONDS * 2 ** (broken - 1) * random.uniform(0.5, 1.0))  # noqa: S311 - jitter, no secret


def begun_late(started: str, pieces: Sequence[Piece], *, read_since: float) -> list[Piece]:
    """Notes for a log that is first read long after its container started.

    What it printed before may be in a file that the node does not show any more. `pieces`: the first.
    """
    first = pieces[0][0]
    quiet = min(epoch(first), read_since) - epoch(started)
    return [(started, unread_line(started, first))] if quiet > _QUIET_SECONDS else []


class _Lag:
    """Finds where a node left out whole files of a log, as it was sent too slowly.

    Who is behind gets the old file to its end and then the newest. That shows: the lines before and
    after are far apart, though the one came right after the other. So do the few lines that were held
    up together, by a proxy or as this process stood still: a file is full only of many.
    """

    def __init__(self) -> None:
        self._stamp = ""
        self._opened_at = self._came_at = time.time()
        self._paused_at = 0.0
        """When the newest pause ended in which nothing came,"""
        self._since_pause = 0
        """and bytes since then."""

    def marked(self, pieces: Iterable[Piece], *, now: float) -> list[Piece]:
        """Return pieces that came just now, with a line where some may be missing."""
        marked: list[Piece] = []
        if now - self._came_at >= _PAUSE_OF_LINES_SECONDS:
            self._paused_at, self._since_pause = now, 0
        for stamp, content in pieces:
            if stamp and stamp[:19] != self._stamp[:19]:
                if self._stamp and self._left_out(epoch(self._stamp), epoch(stamp), now):
                    marked.append((self._stamp, gap_line(self._stamp, stamp)))
                self._stamp = stamp
            self._since_pause += len(content)
            marked.append((stamp, content))
        self._came_at = now
        return marked

    def _left_out(self, before: float, after: float, now: float) -> bool:
        far = after - before
        held_up = now - self._paused_at < FILE_SECONDS and self._since_pause < _HELD_UP_BYTES
        at_once = now - self._came_at < far / 2 and not held_up
        return far >= FILE_SECONDS and before > self._opened_at and at_once


Read = Callable[[str, int], Awaitable[bytes]]
"""(Since when, "" from the beginning; most bytes) -> lines with time stamps of a log."""


async def read_live(read: Read, cursor: Cursor, *, limit: int, begins: bytes = b"") -> LogChunk:
    """Output of a running container after `cursor`; at most `limit` bytes.

    `begins`: the line before which everything is of earlier attempts; empty: nothing is.
    """
    token = cursor.token
    if begins and not token:
        token = await _token_of(read, line=begins)
        if not token:
            return LogChunk(data=b"", next=cursor, end=False)
    size = limit + _WINDOW_BYTES
    while True:
        reader = StampedReader(token)
        text = await read(reader.reopen(), size)
        data = _up_to(reader, text, limit)
        if data or len(text) < size:
            next_ = Cursor(offset=cursor.offset + len(data), token=reader.token if data else token)
            return LogChunk(data=data, next=next_, end=False)
        size *= 4  # nothing new: even more was printed within one second


def _up_to(reader: StampedReader, text: bytes, limit: int) -> bytes:
    """Return at most `limit` bytes of what is new, and have the reader stand behind them."""
    taken = bytearray()
    for _, content in reader.take(text):
        taken += content
        over = len(taken) - limit
        if over > 0 and not content.startswith(GAP.encode()):
            reader.give_back(over)
            del taken[limit:]
        if over >= 0:
            break
    return bytes(taken)


async def _token_of(read: Read, *, line: bytes) -> str:
    """Return the place of a line in a running container's log; "" where it is not there yet."""
    reader, size, held = StampedReader(), _WINDOW_BYTES, b""
    while True:
        text, fresh = await read(reader.reopen(), size), False
        for stamp, content in reader.take(text):
            held = content if stamp else held + content
            fresh = True
            if held.rstrip(b"\n").endswith(line) and held.endswith(b"\n"):
                reader.give_back(len(line) + 1)
                return reader.token
        if len(text) < size:
            return ""
        size = _WINDOW_BYTES if fresh else size * 4


def _fsspec() -> Any:
    return import_module("fsspec")  # without types, and slow to import

"""Logs of living pods as files of this machine: what the API server sent, with its time stamps.

One process appends to the files of a run, whoever holds its lock; any other may read them.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from airflow_training.runtimes.kubernetes.timestamped_lines import StampedReader

__all__ = ["CollectedLog", "CollectedRun"]

_BLOCK_BYTES = 1 << 20
_STAMP_BYTES = 64
"""A time stamp is shorter."""


class CollectedRun:
    """The folder with the logs of a run's pods."""

    def __init__(self, folder: Path, run_uid: str) -> None:
        self.folder = folder / run_uid
        self._lock: BinaryIO | None = None
        self.failed = False
        """The folder could not be made."""

    def acquire(self) -> bool:
        """Return whether this process appends from now on; no other can until `release`."""
        if self._lock is not None:
            return True
        self.folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.folder.mkdir(exist_ok=True, mode=0o700)
        file = (self.folder / "lock").open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.close()
            return False
        self._lock = file
        return True

    def release(self) -> None:
        """Let another process append."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    @property
    def is_written(self) -> bool:
        """Return whether any process appends."""
        if self._lock is not None:
            return True
        try:
            with (self.folder / "lock").open("rb") as file:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            return False
        except BlockingIOError:
            return True
        return False

    def log(self, pod_uid: str, *, most_bytes: int) -> CollectedLog:
        """Return the log of one pod. `most_bytes`: how much of its end stays at least; 0: all of it."""
        return CollectedLog(self.folder / f"{pod_uid}.log", most_bytes=most_bytes)

    def notes(self) -> dict[str, dict[str, Any]]:
        """Return pod uid -> what was noted of its log, of those of which something was collected."""
        return {
            path.stem: json.loads(path.read_bytes())
            for path in self.folder.glob("*.json")
            if path.with_suffix(".log").exists()
        }

    def remove(self) -> None:
        """Take the whole folder away."""
        shutil.rmtree(self.folder, ignore_errors=True)


class CollectedLog:
    """One file of lines with time stamps, in about their order.

    Where its beginning was dropped, a first line says how much: `#` and the bytes of content.
    """

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        self.path = path
        self._most_bytes = most_bytes

    def append(self, data: bytes) -> None:
        """Add what was read; drop the beginning of a file that is twice as large as it may be."""
        with _private(self.path) as file:
            before = file.tell()
            try:
                file.write(data)
                file.flush()
            except OSError:
                file.truncate(before)  # half a time stamp would be none
                raise
            size = file.tell()
        if self._most_bytes and size > 2 * self._most_bytes:
            self._trim(size)

    def note(self, about: Mapping[str, Any], *, ahead: bool = False) -> None:
        """Write down whose log it is, as it is archived; nothing where none is collected here.

        That it was read to its end, which somebody else may have noted, stays true. `ahead`: it is about to be collected.
        """
        with contextlib.suppress(OSError):  # a full disk: it is archived all the same
            if ahead or self.path.exists():
                ended = {"ended": True} if self.has_ended() else {}
                half = self.path.with_suffix(".half")
                half.write_text(json.dumps({**about, **ended}))
                half.replace(self.path.with_suffix(".json"))

    def has_ended(self) -> bool:
        """Return whether somebody noted that it was read to its end."""
        with contextlib.suppress(FileNotFoundError):
            return bool(json.loads(self.path.with_suffix(".json").read_bytes()).get("ended"))
        return False

    def _trim(self, size: int) -> None:
        shorter = self.path.with_suffix(".new")
        shorter.unlink(missing_ok=True)
        with self.path.open("rb") as file, _private(shorter) as rest:
            dropped, reader = _header(file), StampedReader()
            while file.tell() < size - self._most_bytes and (line := file.readline()):
                dropped += sum(len(content) for _, content in reader.take(line))
            rest.write(b"#%d\n" % dropped)
            shutil.copyfileobj(file, rest)
        shorter.replace(self.path)

    def text(self, since: str, size: int) -> bytes:
        """Return up to `size` bytes from the first line of the second `since` on; "": from the beginning."""
        try:
            with self.path.open("rb") as file:
                _header(file)
                if since:
                    file.seek(_place_of(file, since[:19].encode()))
                return file.read(size)
        except FileNotFoundError:
            return b""

    async def read(self, since: str, size: int) -> bytes:
        """Return the same as `text`."""
        return await asyncio.to_thread(self.text, since, size)

    def dropped(self) -> int:
        """Return how many bytes of content the beginning had that was dropped."""
        try:
            with self.path.open("rb") as file:
                return _header(file)
        except FileNotFoundError:
            return 0

    def open(self) -> tuple[int, Iterator[bytes]]:
        """Return how much was dropped, and the whole rest of the file as it is now."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return 0, iter(())
        return _header(file), _blocks(file)

    def reader(self) -> StampedReader:
        """Return a reader that has taken all that is here."""
        reader = StampedReader()
        last = self._last_stamp()
        if last:
            with self.path.open("rb") as file:
                _header(file)
                file.seek(_place_of(file, last[:19]))
                while block := file.read(_BLOCK_BYTES):
                    for _ in reader.take(block):
                        pass
        return reader

    def _last_stamp(self) -> bytes:
        """Return the stamp of the line that was begun last."""
        try:
            with self.path.open("rb") as file:
                end = file.seek(0, os.SEEK_END)
                held = b""
                while end:
                    size = min(_BLOCK_BYTES, end)
                    file.seek(end - size)
                    held = file.read(size) + held[:_STAMP_BYTES]
                    end -= size
                    begin = held.rfind(b"\n", 0, len(held) - 1) + 1
                    if begin or not end:
                        return held[begin : begin + _STAMP_BYTES].partition(b" ")[0]
        except FileNotFoundError:
            pass
        return b""


def _private(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def _header(file: BinaryIO) -> int:
    """Go to the first line with a time stamp; return how many bytes of content were dropped."""
    if file.read(1) == b"#":
        return int(file.readline())
    file.seek(0)
    return 0


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    with file:
        while block := file.read(_BLOCK_BYTES):
            yield block


def _place_of(file: BinaryIO, second: bytes) -> int:
    """Return where the first line of this second or a later one begins, from here on."""
    low, high = file.tell(), file.seek(0, os.SEEK_END)
    while high - low > _BLOCK_BYTES:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        begin = file.tell()
        if begin >= high or file.read(len(second)) >= second:
            high = middle
        else:
            low = begin
    file.seek(low)
    while True:
        begin = file.tell()
        line = file.readline()
        if not line or line[: len(second)] >= second:
            return begin

"""Loopback ports taken in advance: unique on this machine, the same for a whole job attempt.

A reservation is a file, made in one step, that names the run folder it belongs to; it is void when
that folder has let go of it. Ports come from below the range the kernel hands out by itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

from airflow_training.agent.files import write_text
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.paths import RunFolder, is_locked, locked, ports_of

__all__ = ["PortBook", "listening_ports"]

_LOWEST = 20000
_FALLBACK_EPHEMERAL = 32768
_LISTEN = "0A"


def _first_ephemeral() -> int:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    except OSError:
        return _FALLBACK_EPHEMERAL
    low = int(text.split()[0])
    return low if low > _LOWEST + 1000 else _FALLBACK_EPHEMERAL


def listening_ports() -> frozenset[int]:
    """Return the TCP ports somebody listens on, without connecting to any of them."""
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            for line in Path(table).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTEN:
                    found.add(int(fields[1].rpartition(":")[2], 16))
    return frozenset(found)


def _bindable(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            raise
    return True


class PortBook:
    """The reservations of one user on one machine."""

    def __init__(self, own: Path, *, shared: Path | None = None) -> None:
        """`own`: where nobody else can write; in use where `shared` is, or once was, taken."""
        self._own = own
        self._shared = shared

    @classmethod
    def of_this_user(cls, local_dir: Path) -> PortBook:
        """Return the book that all local directories of this user share, where nobody hinders it."""
        # one place whatever TMPDIR says: everybody must look into the same book
        shared = Path("/tmp") / f"airflow-training-ports-{os.getuid()}"  # noqa: S108 - owner and mode are checked
        return cls(local_dir / ".ports", shared=shared)

    def reserve(self, owner: Path, *, count: int, start: int) -> list[int]:
        """Return `count` free ports reserved for the run folder `owner`.

        `start` spreads runs over the range. Raises RuntimeUnavailable when all are taken.
        """
        low, high = _LOWEST, _first_ephemeral()
        found: list[int] = []
        for step in range(high - low):
            if len(found) == count:
                return found
            port = low + (start + step) % (high - low)
            if self._holder(port) != str(owner) and self.take(owner, port):
                found.append(port)
        if len(found) == count:
            return found
        self.release(owner, found)
        raise RuntimeUnavailable(f"no {count} free ports from {low} to {high}")

    def take(self, owner: Path, port: int) -> bool:
        """Reserve this very port; False where it is another's or in use. Ours stays ours."""
        holder = self._holder(port)
        if holder == str(owner):
            return True
        if holder is not None and not _void(holder, port):
            return False
        if not _bindable(port):
            return False
        return self._claim(owner, port, instead_of=holder)

    def keep(self, owner: Path, port: int) -> None:
        """Reserve again what is the owner's, and may be in use by it: the note of it may be lost."""
        holder = self._holder(port)
        if holder != str(owner) and (holder is None or _void(holder, port)):
            self._claim(owner, port, instead_of=holder)

    def release(self, owner: Path, ports: Iterable[int]) -> None:
        """Give reservations back; those of others stay."""
        for port in ports:
            if self._holder(port) == str(owner):
                with self._held(port):
                    if self._holder(port) == str(owner):
                        self._file(port).unlink(missing_ok=True)

    @cached_property
    def _folder(self) -> Path:
        if self._shared is not None and not self._own.exists() and _make_private(self._shared):
            return self._shared
        self._own.mkdir(mode=0o700, parents=True, exist_ok=True)
        return self._own

    def _file(self, port: int) -> Path:
        return self._folder / str(port)

    def _holder(self, port: int) -> str | None:
        try:
            return self._file(port).read_text()
        except OSError:
            return None

    def _held(self, port: int) -> contextlib.AbstractContextManager[None]:
        """Exclude others who change the same reservation: one lock per ten ports is enough."""
        return locked(self._folder / f"lock-{port % 10}")

    def _claim(self, owner: Path, port: int, *, instead_of: str | None) -> bool:
        with self._held(port):
            if self._holder(port) != instead_of:
                return False  # somebody was faster
            write_text(self._file(port), str(owner))
        return True


def _make_private(folder: Path) -> bool:
    """Make a folder that only this user can enter; False where the name is somebody else's."""
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()  # a link may lead anywhere
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return False
    folder.chmod(0o700)
    return True


def _void(holder: str, port: int) -> bool:
    """Return whether the run folder `holder` does not use the port (any more)."""
    folder = Path(holder)
    if not folder.exists() or (folder / "tombstone.json").exists():
        return True
    # Before looking into its book: while the lock is held the book may not be written yet.
    if is_locked(folder / "prepare.lock"):
        return False
    return port not in ports_of(RunFolder(folder.parent, folder.name).port_book())

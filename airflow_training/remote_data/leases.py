"""Leases on files that are not there yet: the kernel says who opens one, and lets nobody through before it is let go.

fcntl(2), "Leases". An open is held back for at most /proc/sys/fs/lease-break-time; before that time is over a file
that could not be filled is cut to nothing, so that no reader ever gets bytes that were not fetched.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import resource
import signal
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from airflow_training.remote_data.errors import UnfetchedRead

__all__ = ["FileLeases", "block_lease_signals"]

_F_SETSIG = 10
_SIGNAL = signal.SIGRTMIN + 3
_SIGNALS = (_SIGNAL, signal.SIGIO)
"""The second comes where more signals wait than the kernel keeps; it does not say which file is meant."""
_INFO_BYTES = 128
_FD = 20
"""Offset of ssi_fd in struct signalfd_siginfo, signalfd(2)."""


def block_lease_signals() -> None:
    """Let no thread of this process be interrupted; called before there are others."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)


def _break_seconds() -> float:
    try:
        told = float(Path("/proc/sys/fs/lease-break-time").read_text())
    except (OSError, ValueError):
        told = 45.0
    return max(told / 2, told - 5.0)


class FileLeases:
    """Holds one lease a file, by an open descriptor each."""

    def __init__(
        self,
        *,
        opened: Callable[[str], None],
        too_late: Callable[[str], None],
        break_seconds: float | None = None,
    ) -> None:
        """Hear of opens in a thread.

        Args:
            opened: is called with a path that somebody wants to open; must not block.
            too_late: is called with one that was cut, as it was not filled in time.
            break_seconds: how long somebody is let wait.
        """
        self._opened = opened
        self._too_late = too_late
        self._patience = _break_seconds() if break_seconds is None else break_seconds
        self._lock = threading.Lock()
        self._held: dict[str, int] = {}
        self._writing: dict[str, threading.Lock] = {}
        """A file is written, cut and let go one after the other: else what is late would land in another file."""
        self._paths: dict[int, str] = {}
        self._asked: dict[str, float] = {}
        self._signals = _signal_descriptor()
        self._is_closed = False
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def take(self, paths: Iterable[str]) -> list[str]:
        """Take the leases; return the paths for which that was not possible: somebody has them open."""
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        missed = []
        for path in paths:
            descriptor = -1
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
                fcntl.fcntl(descriptor, _F_SETSIG, int(_SIGNAL))
                with self._lock:
                    self._held[path] = descriptor
                    self._writing[path] = threading.Lock()
                    self._paths[descriptor] = path
                fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
            except OSError:
                missed.append(path)
                with self._lock:
                    self._held.pop(path, None)
                    self._paths.pop(descriptor, None)
                if descriptor >= 0:
                    os.close(descriptor)
        self._thread.start()
        return missed

    @contextlib.contextmanager
    def borrow(self, path: str) -> Iterator[int]:
        """Lend the descriptor by which a leased file is filled; nobody is let through meanwhile.

        Raises:
            UnfetchedRead: the file has no lease, or none any more: somebody reads it.
        """
        with self._writing.get(path) or contextlib.nullcontext():
            descriptor = self._held.get(path)
            if descriptor is None:
                raise UnfetchedRead(f"{path}: it was opened before its content was there")
            yield descriptor

    def let_go(self, path: str) -> None:
        """Let everybody through who waits, and who comes later."""
        with self._writing.get(path) or contextlib.nullcontext():
            self._close(path)

    def cut(self, path: str) -> bool:
        """Let everybody through to an empty file: its content will not come. False where it has come just now."""
        with self._writing.get(path) or contextlib.nullcontext():
            descriptor = self._held.get(path)
            if descriptor is None:
                return False
            os.ftruncate(descriptor, 0)
            self._close(path)
            return True

    def _close(self, path: str) -> None:
        with self._lock:
            descriptor = self._held.pop(path, None)
            self._asked.pop(path, None)
            if descriptor is not None:
                del self._paths[descriptor]
        if descriptor is not None:
            os.close(descriptor)  # with it the lease

    def _listen(self) -> None:
        while not self._is_closed:
            for descriptor in self._next():
                with self._lock:
                    path = self._paths.get(descriptor)
                    if path is not None:
                        self._asked.setdefault(path, time.monotonic())
                if path is not None:
                    self._opened(path)
            self._cut_what_is_late()

    def _next(self) -> list[int]:
        """Return the descriptors whose files somebody wants to open, after a quarter of a second at most."""
        import select

        if not select.select([self._signals], [], [], 0.25)[0]:
            return []
        found = []
        for info in _infos(os.read(self._signals, _INFO_BYTES * 64)):
            (number,) = struct.unpack_from("I", info)
            if number == int(_SIGNAL):
                found.append(struct.unpack_from("i", info, _FD)[0])
            else:
                found += self._broken()
        return found

    def _broken(self) -> list[int]:
        with self._lock:
            held = list(self._paths)
        found = []
        for descriptor in held:
            with contextlib.suppress(OSError):
                if fcntl.fcntl(descriptor, fcntl.F_GETLEASE) != fcntl.F_WRLCK:
                    found.append(descriptor)
        return found

    def _cut_what_is_late(self) -> None:
        now = time.monotonic()
        late = [path for path, since in list(self._asked.items()) if now - since > self._patience]
        for path in late:
            if self.cut(path):
                self._too_late(path)

    def close(self) -> None:
        """Give all leases back. Files that are not filled stay as they were laid out."""
        self._is_closed = True
        if self._thread.is_alive():
            self._thread.join()
        for path in list(self._held):
            self.let_go(path)
        os.close(self._signals)


def _infos(data: bytes) -> list[bytes]:
    return [data[start : start + _INFO_BYTES] for start in range(0, len(data), _INFO_BYTES)]


def _signal_descriptor() -> int:
    """Return a signalfd for both signals: alone it says which descriptor is meant."""
    block_lease_signals()
    library = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()
    library.sigemptyset(mask)
    for number in _SIGNALS:
        library.sigaddset(mask, int(number))
    descriptor = int(library.signalfd(-1, mask, os.O_CLOEXEC))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "signalfd")
    return descriptor

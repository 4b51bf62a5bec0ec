"""What keeps readers from content that is not there. Tried out in the folder itself, as it depends on where that lies.

leases  The kernel holds back whoever opens a file on which the fetcher has a lease (fcntl(2)), any program in any
        language, until the file is filled.
modes   Nobody may read the file. Root may all the same.
times   Whoever reads a file changes its access time: found out within seconds, and again at the end.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import signal
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Guard", "probe_guard"]

_F_SETSIG = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """Which of the three work in a folder."""

    leases: bool
    modes: bool
    times: bool

    @property
    def is_any(self) -> bool:
        """False: nothing would tell of a read that came too early, so everything is fetched before the start."""
        return self.leases or self.modes or self.times

    def mode_of(self, mode: int) -> int:
        """Return the permission bits of a file that is not ready."""
        if self.leases or not self.modes:
            return mode | 0o200  # it is filled by who is no more than its owner
        return 0o200


def probe_guard(folder: Path, *, files: int) -> Guard:
    """Try all three on a file in `folder`.

    Args:
        folder: where data is laid out; made where it is not there.
        files: how many leases would be held, each by an open file.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f".guard-{secrets.token_hex(8)}"
    path.write_bytes(b"\0")
    try:
        times = _has_times(path)
        return Guard(
            # they end with the process that holds them: what was read after that is told by times alone
            leases=times and _can_hold(files) and _has_leases(path),
            modes=os.geteuid() != 0,
            times=times,
        )
    finally:
        path.unlink()


def _can_hold(files: int) -> bool:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return hard == resource.RLIM_INFINITY or files + 512 < hard


def _has_leases(path: Path) -> bool:
    """Return whether an open of a leased file is held back."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        # the holder is told of the attempt below: by a signal that nobody minds
        fcntl.fcntl(descriptor, _F_SETSIG, int(signal.SIGURG))
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK))
    except BlockingIOError as error:
        return error.filename is not None  # of the open; the lease itself was refused else
    except (OSError, AttributeError):
        return False
    finally:
        os.close(descriptor)
    return False


def _has_times(path: Path) -> bool:
    """Return whether a read changes the access time of a file whose time is that of a file nobody has read."""
    os.utime(path, ns=(0, 0))
    if path.stat().st_atime_ns:
        return False
    path.read_bytes()
    return path.stat().st_atime_ns != 0

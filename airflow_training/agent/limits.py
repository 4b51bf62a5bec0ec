"""The memory limit of an instance: a cgroup (v2) where we may make one, else RLIMIT_DATA.

RLIMIT_DATA counts what one process asks for, not what the whole tree uses, and reaching it is a
failed allocation, not a kill: it is the weaker way, so the instance says when it had to be taken.
"""

from __future__ import annotations

import contextlib
import os
import re
import resource
import signal
from pathlib import Path

__all__ = ["MemoryLimit", "own_cgroup", "read_counter"]

_MOUNT = Path("/sys/fs/cgroup")
_TAIL_BYTES = 1 << 16
_CHILD_KILLED = re.compile(rb"\bkilled\b|SIGKILL|\bsignal:? 9\b|\bexit ?code:? -9\b", re.IGNORECASE)
"""In the words of a parent, a launcher or the kernel that has lost a process."""


def own_cgroup() -> Path | None:
    """Return the folder of this process's cgroup v2, or None without a unified hierarchy."""
    if not (_MOUNT / "cgroup.controllers").exists():
        return None
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        if line.startswith("0::"):
            folder = _MOUNT / line[3:].lstrip("/")
            return folder if folder.is_dir() else None
    return None


def read_counter(path: Path, name: str) -> int:
    """Return a number from a `name value` file; 0 where it is not there."""
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return 0
    for line in lines:
        key, _, value = line.partition(" ")
        if key == name and value.strip().isdigit():
            return int(value)
    return 0


def _surrounding_events() -> Path | None:
    """Return the file that counts OOM kills in the cgroup we live in (v2, or v1)."""
    unified = own_cgroup()
    if unified is not None and (unified / "memory.events").exists():
        return unified / "memory.events"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if "memory" in controllers.split(","):
            for folder in (_MOUNT / "memory" / path.lstrip("/"), _MOUNT / "memory"):
                if (folder / "memory.oom_control").exists():
                    return folder / "memory.oom_control"
    return None


class MemoryLimit:
    """Set up in the agent, joined by the command between fork and exec."""

    def __init__(
        self, limit_bytes: int | None, *, name: str, parent: Path | None, alone: bool = False
    ) -> None:
        """`parent`: the cgroup to make ours in; None where there is no unified hierarchy.

        `alone`: nobody else lives in the one that we are in, as in a container.
        """
        self.limit_bytes = limit_bytes
        self._alone = alone
        self.folder: Path | None = None
        self.warning = ""
        self._events = _surrounding_events()
        if limit_bytes is not None:
            self.folder = _make_group(parent, name, limit_bytes)
            if self.folder is None:
                self.warning = (
                    "no writable cgroup v2: the memory limit holds for each process"
                    " (RLIMIT_DATA), not for all together"
                )
            else:
                self._events = self.folder / "memory.events"
        self._kills = self._count()

    def _count(self) -> int:
        return 0 if self._events is None else read_counter(self._events, "oom_kill")

    def join(self) -> None:
        """Put the calling process under the limit; everything it starts follows."""
        if self.folder is not None:
            (self.folder / "cgroup.procs").write_text("0")
        elif self.limit_bytes is not None:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            limit = self.limit_bytes
            if hard != resource.RLIM_INFINITY:
                limit = min(limit, hard)
            resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))

    @property
    def oom_killed(self) -> bool:
        """Return whether the kernel killed something for want of memory since the start."""
        return self._count() > self._kills

    def killed_it(self, exit_code: int, *, log: int) -> bool:
        """Return whether a command that ended like this did so as the kernel killed it, or a child of it.

        A parent that has lost a child ends with any code. Where others live in our cgroup, the kill
        may have been one of theirs: then it counts as ours only if `log`, its file, tells of one.
        """
        if exit_code == 0 or not self.oom_killed:
            return False
        # a shell in front shows the kill of its child as 137
        if exit_code == 128 + signal.SIGKILL or self._alone or self.folder is not None:
            return True
        return _CHILD_KILLED.search(_tail(log)) is not None

    def members(self) -> list[int]:
        """Return the processes in our own cgroup: also those that left the process tree."""
        if self.folder is None:
            return []
        try:
            return [int(line) for line in (self.folder / "cgroup.procs").read_text().split()]
        except OSError:
            return []

    def close(self) -> None:
        """Remove our cgroup; it is empty by now."""
        if self.folder is not None:
            with contextlib.suppress(OSError):
                self.folder.rmdir()


def _tail(file: int) -> bytes:
    """Return the end of a file that is open for writing; empty where it is none that can be read."""
    try:
        with open(f"/proc/self/fd/{file}", "rb") as again:  # noqa: PTH123  # no name but this
            again.seek(-min(_TAIL_BYTES, os.fstat(file).st_size), os.SEEK_END)
            return again.read()
    except OSError:
        return b""


def _make_group(parent: Path | None, name: str, limit_bytes: int) -> Path | None:
    """Return a new cgroup with the limit, below `parent` or beside it; None where not allowed."""
    if parent is None:
        return None
    # a group with processes cannot hand controllers down: then its own parent may
    for base in (parent, parent.parent):
        folder = base / f"training-{name}"
        try:
            if "memory" not in (base / "cgroup.controllers").read_text().split():
                continue
            enabled = base / "cgroup.subtree_control"
            if "memory" not in enabled.read_text().split():
                enabled.write_text("+memory")
            folder.mkdir(exist_ok=True)
            (folder / "memory.max").write_text(str(limit_bytes))
            with contextlib.suppress(OSError):  # absent without swap accounting
                (folder / "memory.swap.max").write_text("0")
            (folder / "memory.oom.group").write_text("1")
        except OSError:
            with contextlib.suppress(OSError):
                folder.rmdir()
            continue
        return folder
    return None

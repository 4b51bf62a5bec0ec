"""Who holds a lease: the owner string, and when its process is surely dead. No store, no lease."""

from __future__ import annotations

import os
import secrets
import socket
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

__all__ = [
    "LEASE_SECONDS",
    "Owner",
    "forget_owner",
    "is_provably_dead",
    "name_of",
    "new_owner",
    "stopped_pid",
]

LEASE_SECONDS = 15.0
"""For how long whoever is not heard of counts as there."""

_live: set[str] = set()
"""Owners made in this process that have not ended: one process may host many holders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The parts of `<host>/<boot id>/<pid>/<start time>/<nonce>`.

    `host` carries the pid namespace (`name~4026531836`): a pid means nothing in another one.
    """

    host: str
    boot_id: str
    pid: int
    start_time: int
    """In clock ticks after boot, so that a reused pid is never mistaken."""
    nonce: str

    def __str__(self) -> str:
        return f"{self.host}/{self.boot_id}/{self.pid}/{self.start_time}/{self.nonce}"

    @classmethod
    def parse(cls, text: str) -> Owner | None:
        """Return the parts of an owner string, None where it is none of ours."""
        parts = text.split("/")
        if len(parts) != 5 or not (parts[2].isdigit() and parts[3].isdigit()):
            return None
        host, boot_id, pid, start, nonce = parts
        return cls(host=host, boot_id=boot_id, pid=int(pid), start_time=int(start), nonce=nonce)


@lru_cache(maxsize=1)
def _here() -> tuple[str, str]:
    """Return (host with pid namespace, boot id); the boot id is empty where there is no /proc."""
    try:
        namespace = "~" + str(Path("/proc/self/ns/pid").readlink()).partition("[")[2].rstrip("]")
    except OSError:
        namespace = ""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        boot_id = ""
    return socket.gethostname().replace("/", "-") + namespace, boot_id


def _process(pid: int) -> tuple[str, int] | None:
    """Return (state letter, start time) of a process we can see, else None."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # the command name is in parentheses and may hold spaces and parentheses itself
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[19])


def new_owner() -> str:
    """Return an owner string for one holder in this process; `forget_owner` when it has ended."""
    host, boot_id = _here()
    seen = _process(os.getpid())
    owner = Owner(
        host=host,
        boot_id=boot_id,
        pid=os.getpid(),
        start_time=seen[1] if seen else 0,
        nonce=secrets.token_hex(4),
    )
    _live.add(str(owner))
    return str(owner)


def forget_owner(owner: str) -> None:
    """Say that a holder of this process has ended, so that the next one need not wait for it."""
    _live.discard(owner)


def name_of(owner: str) -> str:
    """Return a holder for people: its process and host."""
    found = Owner.parse(owner)
    if found is None:
        return f"another process ({owner})"
    return f"process {found.pid} on {found.host.partition('~')[0]}"


def stopped_pid(owner: str) -> int | None:
    """Return the pid of a holder that a signal has stopped (state T); None where that is not seen from here."""
    parsed = Owner.parse(owner)
    if parsed is None or not _is_here(parsed) or is_provably_dead(owner):
        return None
    seen = _process(parsed.pid)
    return parsed.pid if seen is not None and seen[0] == "T" else None


def _is_here(owner: Owner) -> bool:
    """Return whether a holder is, or was, a process that would be seen from here."""
    host, boot_id = _here()
    return bool(boot_id) and (owner.host, owner.boot_id) == (host, boot_id)


def is_provably_dead(owner: str) -> bool:
    """Return True only where the holder can be seen to be gone; False in every doubt.

    Another host, another boot or another pid namespace proves nothing: their lease must run out.
    """
    parsed = Owner.parse(owner)
    if parsed is None or not _is_here(parsed):
        return False
    mine = _process(os.getpid())
    if mine is not None and (parsed.pid, parsed.start_time) == (os.getpid(), mine[1]):
        return owner not in _live
    try:
        os.kill(parsed.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's process: its start time still tells
    seen = _process(parsed.pid)
    return seen is not None and (seen[0] in "ZX" or seen[1] != parsed.start_time)

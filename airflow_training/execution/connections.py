"""The connections that process groups opened, for who leaves them: other ranks wait for data on these until they are shut.

gloo closes them with the last reference to a group, and references stay: in DTensor's caches, and with a
`DistributedDataParallel` whose reduction has failed. So they are known by what was opened while groups were made, and shut by
their descriptors. On Linux; elsewhere, others wait until the timeout of their group.
"""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["GroupConnections"]

_DESCRIPTORS = Path("/proc/self/fd")


class GroupConnections:
    """What is opened from now on, until `note`, but for connections with the store that ranks meet at."""

    def __init__(self, *, store_port: int) -> None:
        """Remember what is open."""
        self._store_port = store_port
        self._before = set(_sockets().values())
        self._opened: set[str] | None = None

    def note(self) -> None:
        """Count what was opened up to now as that of the groups, and nothing after."""
        self._opened = set(_sockets().values()) - self._before

    def shut(self) -> None:
        """End those that are open still: whoever waits for this process there sees that it has left."""
        if self._opened is None:  # groups were not made to the end
            self.note()
        for descriptor, name in _sockets().items():
            if name in (self._opened or ()):
                with (
                    contextlib.suppress(OSError),
                    socket.socket(fileno=os.dup(descriptor)) as found,
                ):
                    if self._is_of_group(found):
                        found.shutdown(socket.SHUT_RDWR)

    def _is_of_group(self, found: socket.socket) -> bool:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return False
        return self._store_port not in (found.getsockname()[1], found.getpeername()[1])


def _sockets() -> dict[int, str]:
    """Return the sockets of this process: descriptor, and a name that no other one has."""
    found: dict[int, str] = {}
    with contextlib.suppress(OSError):
        for entry in _DESCRIPTORS.iterdir():
            with contextlib.suppress(OSError):  # that of this look itself
                target = str(entry.readlink())
                if target.startswith("socket:"):
                    found[int(entry.name)] = target
    return found

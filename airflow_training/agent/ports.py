"""The instance's own ports while its command does not run: kept from others, and free when it starts.

A program that is killed leaves its connections behind for a minute, and until they are gone nobody
can listen on their port, unless that program had asked for SO_REUSEADDR: asking for it here tells.
"""

from __future__ import annotations

import socket

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["LONGEST_WAIT_SECONDS", "LOOK_SECONDS", "HeldPorts", "in_use"]

LONGEST_WAIT_SECONDS = 90.0
"""After so long the command starts all the same: not every program listens on what it could."""
LOOK_SECONDS = 0.25


class HeldPorts:
    """Ports that are bound, but not listened on: whoever tries to reach one is refused at once."""

    def __init__(self, ports: Iterable[int]) -> None:
        self._missing = sorted(set(ports))
        self._sockets: list[socket.socket] = []

    def take(self) -> list[int]:
        """Take those that can be had; return the others."""
        for port in list(self._missing):
            held = socket.socket()
            held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                held.bind(("", port))
            except OSError:
                held.close()
            else:
                self._sockets.append(held)
                self._missing.remove(port)
        return list(self._missing)

    def release(self) -> None:
        """Give them back: nothing else may be started before, it would hold them on."""
        for held in self._sockets:
            self._missing.append(held.getsockname()[1])
            held.close()
        self._sockets.clear()


def in_use(ports: list[int]) -> str:
    """A sentence about ports that cannot be bound yet; empty where all are free."""
    which = ", ".join(map(str, ports))
    return f"waits until port {which} is free: it is still in use"

"""Tell everybody who watches a run that something changed: one datagram per socket, no waiting."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path

__all__ = ["notify"]


def notify(watchers: Path, what: str) -> None:
    """Send `what` to every socket in the folder; sockets nobody reads any more are removed."""
    try:
        folder = os.open(watchers, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
            for name in os.listdir(folder):  # noqa: PTH208  # a descriptor, not a path
                with contextlib.suppress(OSError):  # a full queue wakes its reader anyway
                    _send(out, folder, name, what.encode())
    finally:
        os.close(folder)


def _send(out: socket.socket, folder: int, name: str, what: bytes) -> None:
    try:
        # through the descriptor: socket paths have room for 107 bytes only
        out.sendto(what, f"/proc/self/fd/{folder}/{name}")
    except ConnectionRefusedError:
        os.unlink(name, dir_fd=folder)

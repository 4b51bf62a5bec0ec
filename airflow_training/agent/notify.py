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
            for name in os.listdir(folder):
                try:
                    # through the descriptor: socket paths have room for 107 bytes only
                    out.sendto(what.encode(), f"/proc/self/fd/{folder}/{name}")
                except ConnectionRefusedError:
                    with contextlib.suppress(OSError):
                        os.unlink(name, dir_fd=folder)
                except OSError:
                    continue  # a full queue wakes its reader anyway
    finally:
        os.close(folder)

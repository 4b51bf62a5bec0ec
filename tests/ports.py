"""Ports for tests: below those the kernel gives to connections, above those of known services."""

from __future__ import annotations

import random
import socket

__all__ = ["free_port"]


def free_port() -> int:
    """Return a port of this machine that nobody uses now.

    A port the kernel hands out by itself will not do where it is used later or more than once: any connection may get
    it meanwhile, and who knocks until somebody listens is in the end connected to itself.
    """
    while True:
        port = random.randrange(10_000, 20_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port

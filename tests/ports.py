"""Ports for tests: below those the kernel gives to connections, above those of known services."""

from __future__ import annotations

import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

__all__ = ["free_port"]

_draw = random.SystemRandom()  # a test may seed the other, in two processes alike


def free_port() -> int:
    """Return a port of this machine that nobody uses now, and that no other call returns while this process lives.

    A port the kernel hands out by itself will not do where it is used later or more than once: any connection may get
    it meanwhile, and who knocks until somebody listens is in the end connected to itself.
    """
    folder = Path(tempfile.gettempdir()) / "airflow-training-test-ports"
    folder.mkdir(exist_ok=True)
    while True:
        port = _draw.randrange(10_000, 20_000)
        lock = os.open(folder / str(port), os.O_RDWR | os.O_CREAT)  # stays open
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", port))
        except OSError:
            os.close(lock)
            continue
        return port

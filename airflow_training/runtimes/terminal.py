"""The terminal of whoever opens a shell: raw while it is open, with its size told. Knows no engine."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import termios
import threading
import tty
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError
from typing import Any

__all__ = ["SHELL", "raw_terminal", "read_stream", "write_all"]

SHELL: Sequence[str] = (
    "/bin/sh",
    "-c",
    "if command -v bash > /dev/null; then exec bash; else exec sh; fi",
)
"""A shell of an instance's own, whichever it has."""
_CHUNK = 1 << 16
_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def raw_terminal(descriptor: int, *, resized: Callable[[int, int], None]) -> Iterator[None]:
    """Pass keys on as they are typed; `resized` is called with rows and columns, first of all with those of now.

    Whatever happens, the terminal is as it was afterwards: what ends the process by a signal cancels
    the current task. Needs a running event loop.
    """

    def tell_size() -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
            rows, columns, _, _ = struct.unpack("HHHH", size)
            resized(rows, columns)

    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    before = termios.tcgetattr(descriptor)
    loop.add_signal_handler(signal.SIGWINCH, tell_size)
    if task is not None:
        for number in _ENDS:
            loop.add_signal_handler(number, task.cancel)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)  # what was typed by now is meant for the shell
        tell_size()
        yield
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)
        for number in (signal.SIGWINCH, *_ENDS):
            loop.remove_signal_handler(number)


def read_stream(descriptor: int, received: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
    """Await `received` in the event loop with what comes, and with nothing at its end.

    More is read once it has returned. In a thread that the process does not wait for: a read of a
    terminal or a file cannot be given up.
    """
    loop = asyncio.get_running_loop()

    def read() -> None:
        while True:
            try:
                data = os.read(descriptor, _CHUNK)
            except OSError:  # the other side of a terminal is gone
                data = b""
            taken = received(data)
            try:
                asyncio.run_coroutine_threadsafe(taken, loop).result()
            except (RuntimeError, CancelledError):  # the loop is closed: nobody wants it any more
                taken.close()
                return
            if not data:
                return

    threading.Thread(target=read, daemon=True).start()


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it; what nobody reads any more is dropped."""
    with contextlib.suppress(BrokenPipeError):
        while data:
            data = data[os.write(descriptor, data) :]

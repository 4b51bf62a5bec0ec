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
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from functools import partial
from typing import Any

from airflow_training.agent.proc import die_with_parent

__all__ = ["SHELL", "kept_terminal", "raw_terminal", "read_stream", "run_in_terminal", "write_all"]

SHELL: Sequence[str] = (
    "/bin/sh",
    "-c",
    "if command -v bash > /dev/null; then exec bash; else exec sh; fi",
)
"""A shell of an instance's own, whichever it has."""
_CHUNK = 1 << 16
_END_SECONDS = 5.0
"""Until what SIGTERM did not end is killed."""
_ENDS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def cancelled_by_signals() -> Iterator[None]:
    """Cancel the current task by what else would end the process: SIGTERM, SIGHUP. Needs a running event loop."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    if task is not None:
        for number in _ENDS:
            loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        for number in _ENDS:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def kept_terminal(descriptor: int) -> Iterator[None]:
    """See to it that a terminal is afterwards as it was; signals as `cancelled_by_signals` has them."""
    before = termios.tcgetattr(descriptor)
    with cancelled_by_signals():
        try:
            yield
        finally:
            with contextlib.suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(descriptor, termios.TCSAFLUSH, before)


@contextlib.contextmanager
def raw_terminal(descriptor: int, *, resized: Callable[[int, int], None]) -> Iterator[None]:
    """Pass keys on as they are typed; `resized` is called with rows and columns, first of all with those of now.

    Else as `kept_terminal`.
    """

    def tell_size() -> None:
        with contextlib.suppress(OSError):
            size = fcntl.ioctl(descriptor, termios.TIOCGWINSZ, bytes(8))
            rows, columns, _, _ = struct.unpack("HHHH", size)
            resized(rows, columns)

    loop = asyncio.get_running_loop()
    with kept_terminal(descriptor):
        loop.add_signal_handler(signal.SIGWINCH, tell_size)
        try:
            # what was typed by now is meant for the shell
            tty.setraw(descriptor, termios.TCSADRAIN)
            tell_size()
            yield
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)


async def run_in_terminal(
    words: Sequence[str],
    *,
    descriptors: tuple[int, int, int],
    terminal: bool,
    env: Mapping[str, str] | None = None,
) -> int:
    """Run what passes a terminal on by itself, as `srun` and `ssh` do; return its exit code. It ends with us.

    `descriptors`: its standard input, output and error; `terminal`: they are one.
    """
    stdin, stdout, stderr = descriptors
    with kept_terminal(stdin) if terminal else cancelled_by_signals():
        process = await asyncio.create_subprocess_exec(
            *words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env=env,
            preexec_fn=partial(die_with_parent, signal.SIGTERM),
        )
        try:
            return await process.wait()
        except asyncio.CancelledError:
            process.terminate()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), _END_SECONDS)
            raise
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()


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

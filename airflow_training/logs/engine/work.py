"""Stretches of logs over processes: each takes the next one that nobody has, results come back through files.

Processes, as the scan holds the interpreter's lock much of the time; forked, so that compiled code and tables are
shared and nothing is loaded twice. This process works too.
"""

from __future__ import annotations

import contextlib
import gc
import os
import pickle
import signal
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_PROCESSES = 8


def usable_processes() -> int:
    """Return how many processes help on this machine."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


def share_out(
    items: Sequence[Item], work: Callable[[Item], Result], *, processes: int
) -> list[Result]:
    """Return the result of each item. What a process does not deliver, killed perhaps, is done here.

    With other threads around there is no forking: they could hold a lock that a child waits for.
    """
    processes = min(processes, len(items))
    if processes < 2 or threading.active_count() > 1:
        return [work(item) for item in items]
    queue, entry = os.pipe()
    # a number of two bytes for each item: reads of a pipe this short are never torn
    os.write(entry, b"".join(number.to_bytes(2, "big") for number in range(len(items))))
    os.close(entry)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(processes - 1)]
        done = _done_together(queue, items, work, files)
        for file in files:
            file.seek(0)
            done.update(_delivered(file))
    return [done[number] if number in done else work(item) for number, item in enumerate(items)]


def _done_together(
    queue: int, items: Sequence[Item], work: Callable[[Item], Result], files: Sequence[IO[bytes]]
) -> dict[int, Result]:
    """Return what this process did, while a child for each file did the rest."""
    children: list[int] = []
    gc.freeze()  # collecting would write to every page that is shared with the children
    try:
        children.extend(_fork(queue, items, work, file) for file in files)
        return dict(_take(queue, items, work))
    except BaseException:
        for child in children:
            os.kill(child, signal.SIGKILL)
        raise
    finally:
        os.close(queue)
        for child in children:
            os.waitpid(child, 0)
        gc.unfreeze()


def _fork(queue: int, items: Sequence[Item], work: Callable[[Item], Any], file: IO[bytes]) -> int:
    with warnings.catch_warnings():
        # Python counts threads of numerical libraries too; those take care of a fork themselves
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child:
        return child
    try:
        for number, result in _take(queue, items, work):
            pickle.dump((number, result), file, protocol=pickle.HIGHEST_PROTOCOL)
        file.flush()
    finally:
        os._exit(0)  # whatever went wrong is done again, and told, by the parent


def _take(
    queue: int, items: Sequence[Item], work: Callable[[Item], Result]
) -> Iterator[tuple[int, Result]]:
    """Yield number and result of the items that this process gets."""
    while name := os.read(queue, 2):
        number = int.from_bytes(name, "big")
        yield number, work(items[number])


def _delivered(file: IO[bytes]) -> Iterator[tuple[int, Any]]:
    """Yield what a child wrote, up to where it stopped."""
    with contextlib.suppress(EOFError, pickle.UnpicklingError):
        while True:
            yield pickle.load(file)  # noqa: S301  # written by our own child into a file without a name

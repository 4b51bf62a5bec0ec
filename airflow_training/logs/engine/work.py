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
import struct
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_PROCESSES = 8
_HEAD = struct.Struct("=HQ")
"""Before each result in a file: the number of its item, and its length in bytes."""


def usable_processes() -> int:
    """Return how many processes help on this machine."""
    return min(MOST_PROCESSES, len(os.sched_getaffinity(0)))


def share_out(
    items: Sequence[Item], work: Callable[[Item], Result], *, processes: int
) -> Iterator[Result]:
    """Yield the result of each item, in order. What a process does not deliver, killed perhaps, is done here.

    Results wait in files without a name, and one is in memory at a time. With other threads around there is no
    forking: they could hold a lock that a child waits for.
    """
    processes = min(processes, len(items))
    if processes < 2 or threading.active_count() > 1:
        yield from map(work, items)
        return
    queue, entry = os.pipe()
    # a number of two bytes for each item: reads of a pipe this short are never torn
    os.write(entry, b"".join(number.to_bytes(2, "big") for number in range(len(items))))
    os.close(entry)
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(processes)]
        _do_together(queue, items, work, files)
        places = {number: (file, at) for file in files for number, at in _delivered(file)}
        for number, item in enumerate(items):
            if number not in places:
                yield work(item)
                continue
            file, at = places[number]
            file.seek(at)
            yield pickle.load(file)  # noqa: S301  # written by us into a file without a name


def _do_together(
    queue: int, items: Sequence[Item], work: Callable[[Item], Any], files: Sequence[IO[bytes]]
) -> None:
    """Do all items, in this process and in a child for each file but the first."""
    children: list[int] = []
    gc.freeze()  # collecting would write to every page that is shared with the children
    try:
        children.extend(_fork(queue, items, work, file) for file in files[1:])
        _write(queue, items, work, files[0])
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
        _write(queue, items, work, file)
    finally:
        os._exit(0)  # whatever went wrong is done again, and told, by the parent


def _write(queue: int, items: Sequence[Item], work: Callable[[Item], Any], file: IO[bytes]) -> None:
    """Do the items that this process gets; before each result stand its number and its length."""
    while name := os.read(queue, 2):
        number = int.from_bytes(name, "big")
        result = pickle.dumps(work(items[number]), protocol=pickle.HIGHEST_PROTOCOL)
        file.write(_HEAD.pack(number, len(result)))
        file.write(result)
    file.flush()


def _delivered(file: IO[bytes]) -> Iterator[tuple[int, int]]:
    """Yield number and place of the results in a file, up to where its process stopped."""
    size = file.seek(0, os.SEEK_END)
    at = 0
    while at + _HEAD.size <= size:
        file.seek(at)
        number, length = _HEAD.unpack(file.read(_HEAD.size))
        at += _HEAD.size
        if at + length <= size:
            yield number, at
        at += length

"""A question that is answered in a child process: what hangs there holds up nobody."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

__all__ = ["LONGEST_TEXT", "ChildCall", "asked_children"]

LONGEST_TEXT = 120
"""Of what is told about an error."""
_MOST_BYTES = 1 << 16
_ASKED: dict[int, int | None] = {}
"""Pid -> start time of the children of this process that have not answered yet."""


def asked_children() -> dict[int, int | None]:
    """Return pid -> start time of the children of this process that work on a question: nothing of a command."""
    return dict(_ASKED)


class ChildCall:
    """One function, called again and again, each time in a child of its own; never waited for."""

    def __init__(self, work: Callable[[], Any], *, on_error: Callable[[str], Any]) -> None:
        """`work` returns JSON; `on_error` makes the answer of what it raises."""
        self._work = work
        self._on_error = on_error
        self._child: int | None = None
        self._unburied: list[int] = []
        self._pipe = -1
        self._asked_at = 0.0
        self._bytes = b""
        self.abandoned: dict[int, int] = {}
        """Pid -> start time of what was given up: inside a driver not even SIGKILL may end it."""

    @property
    def waiting(self) -> bool:
        """Whether it was put and neither answered nor given up."""
        return self._child is not None

    @property
    def age(self) -> float:
        """Seconds since it was put last."""
        return time.monotonic() - self._asked_at

    def put(self) -> None:
        """Put the question, if none waits for its answer; raises OSError where nothing can start."""
        if self._child is not None:
            return
        read, write = os.pipe()
        try:
            child = os.fork()
        except OSError:
            os.close(read)
            os.close(write)
            raise
        if child == 0:
            self._be_child(read, write)
        os.close(write)
        os.set_blocking(read, False)
        _ASKED[child] = proc.start_time(child)
        self._child, self._pipe, self._asked_at = child, read, time.monotonic()
        self._bytes = b""

    def answer(self, *, within: float = 0.0) -> bytes | None:
        """Return the whole answer; None where it has not come `within` so many seconds."""
        until = time.monotonic() + within
        while self._child is not None:
            if self._collect():
                return self._bytes
            left = until - time.monotonic()
            if left <= 0:
                return None
            select.select([self._pipe], [], [], left)
        return None

    def give_up(self) -> None:
        """End what was started for it."""
        # somebody of it still holds the pipe: the number of its group is nobody else's
        if self._child is not None:
            self.abandoned.update(proc.session_members(self._child))
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._child, signal.SIGKILL)
            self._end()

    def _be_child(self, read: int, write: int) -> None:
        """Work, answer, and leave; never returns."""
        try:
            os.setsid()  # whatever it starts ends with it
            with contextlib.suppress(ValueError):  # not in the main thread
                signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE):
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, [])
            proc.die_with_parent()
            os.close(read)
            try:
                answer = json.dumps(self._work())
            except Exception as error:  # noqa: BLE001  # whatever a driver, a disk or a command does
                answer = json.dumps(self._on_error(repr(error)[:LONGEST_TEXT]))
            with os.fdopen(write, "wb") as pipe:
                pipe.write(answer.encode())
        finally:
            os._exit(0)

    def _collect(self) -> bool:
        """Take in what was answered; return whether that is all of it."""
        with contextlib.suppress(BlockingIOError):
            while True:
                block = os.read(self._pipe, _MOST_BYTES)
                self._bytes = (self._bytes + block)[: _MOST_BYTES + 1]
                if not block:
                    self._end()
                    return True
        return False

    def _end(self) -> None:
        os.close(self._pipe)
        if self._child is not None:
            _ASKED.pop(self._child, None)
            self._unburied.append(self._child)
        self._child, self._pipe = None, -1
        self._unburied = [pid for pid in self._unburied if _is_alive(pid)]


def _is_alive(child: int) -> bool:
    """Return whether it still has to be waited for: in a driver that hangs that may take for ever."""
    try:
        return os.waitpid(child, os.WNOHANG)[0] == 0
    except ChildProcessError:  # the agent waits for all its children
        return False

"""All that an agent waits for, in one `poll`: signals, its children, timers and descriptors. One thread.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from typing import Any

__all__ = ["Loop"]


class Loop:
    """Calls back; one at a time lives in a process, as the signals are its own."""

    def __init__(self, signals: Sequence[int], *, signalled: Callable[[int], None]) -> None:
        """`signals`: those that are given to `signalled`."""
        self._signals = (signal.SIGCHLD, *signals)
        self._signalled = signalled
        self._timers: dict[str, tuple[float, Callable[[], None]]] = {}
        self._children: dict[int, Callable[[int], None]] = {}
        self._readers: dict[int, Callable[[], None]] = {}
        self._wakeup, self._wakeup_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in self._signals:
            signal.signal(number, lambda *_: None)
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)

    def turn(self) -> None:
        """Wait for the next event, and call back for all that there are."""
        poller = select.poll()
        for descriptor in (self._wakeup, *self._readers):
            poller.register(descriptor, select.POLLIN)
        due = min((at for at, _ in self._timers.values()), default=None)
        wait = None if due is None else max(0.0, due - time.monotonic()) * 1000
        for descriptor, _ in poller.poll(wait):
            if descriptor == self._wakeup:
                for number in os.read(self._wakeup, 512):
                    if number in self._signals[1:]:
                        self._signalled(number)
            elif descriptor in self._readers:
                self._readers[descriptor]()
        self.reap()
        now = time.monotonic()
        for name, (at, act) in list(self._timers.items()):
            if at <= now and name in self._timers:
                del self._timers[name]
                act()

    def reap(self) -> None:
        """Call back for the children that have ended."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            ended = self._children.pop(pid, None)
            if ended is not None:  # else it is an orphan
                ended(status)

    def close(self) -> None:
        """Let go of the signals, and of everything that is waited for."""
        self._timers, self._children, self._readers = {}, {}, {}
        signal.set_wakeup_fd(-1)
        for descriptor in (self._wakeup, self._wakeup_write):
            os.close(descriptor)

    # timers --------------------------------------------------------------------------------------
    def after(self, seconds: float, name: str, act: Callable[[], None]) -> None:
        """Call `act` after so long; a timer of the same name is replaced."""
        self._timers[name] = (time.monotonic() + seconds, act)

    def sooner(self, seconds: float, name: str) -> None:
        """Have a timer run out after so long at the latest, where there is one."""
        if name in self._timers:
            at, act = self._timers[name]
            self._timers[name] = (min(at, time.monotonic() + seconds), act)

    def cancel(self, *names: str) -> None:
        """Forget timers."""
        for name in names:
            self._timers.pop(name, None)

    def cancel_all(self, *, but: str) -> None:
        """Forget every timer but one."""
        self.cancel(*(name for name in list(self._timers) if name != but))

    # descriptors and children --------------------------------------------------------------------
    def when_readable(self, descriptor: int, act: Callable[[], None]) -> None:
        """Call `act` whenever there is something to read."""
        self._readers[descriptor] = act

    def forget(self, descriptor: int) -> None:
        """Look at a descriptor no more."""
        self._readers.pop(descriptor, None)

    def when_ended(self, pid: int, act: Callable[[int], None]) -> None:
        """Call `act` with the wait status of a child."""
        self._children[pid] = act

    @property
    def children(self) -> Collection[int]:
        """Pids of the children that are waited for."""
        return tuple(self._children)

    def fork(self, work: Callable[[], object], *, ended: Callable[[int], None]) -> int:
        """Do `work` in a child, which SIGTERM ends; it exits with 1 where that raises."""
        pid = os.fork()
        if pid == 0:
            code = 1
            with contextlib.suppress(BaseException):  # a child must never run on as a second agent
                self.leave()
                work()
                code = 0
            os._exit(code)
        self.when_ended(pid, ended)
        return pid

    def ask(self, work: Callable[[], Any], *, then: Callable[[Any], None]) -> None:
        """Have a child answer in JSON, 64 KiB at most; `then` gets that, or None where the child ended without.

        Nobody reads before it has ended: the pipe holds all of it.
        """
        read, write = os.pipe()

        def answer() -> None:
            os.write(write, json.dumps(work()).encode())

        def ended(_: int) -> None:
            with os.fdopen(read, "rb") as pipe:
                told = pipe.read()
            then(json.loads(told) if told else None)

        self.fork(answer, ended=ended)
        os.close(write)

    def leave(self) -> None:
        """In a child: signals mean again what they mean to any program."""
        signal.set_wakeup_fd(-1)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, *self._signals):
            signal.signal(number, signal.SIG_DFL)

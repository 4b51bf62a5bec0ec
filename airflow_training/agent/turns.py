"""Attempts that follow one another inside one pod: what is told of them, and how the next one begins.

An attempt is a *turn* of its pod, the first one 0. Orders come as a file (an annotation, through the
downward API) and name the turn they mean; what becomes of them is told with the progress.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import time
from pathlib import Path

from airflow_training.agent import limits, proc
from airflow_training.agent.files import read_json

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

__all__ = ["BEGINS", "Turns", "expanded"]

BEGINS = "airflow-training: attempt {} begins"
"""Line of the log before which everything is of earlier attempts."""

_LOOK_SECONDS = 0.25
_NEVER_STARTED = (126, 127)
_STOPPING = (signal.SIGTERM, signal.SIGINT)


def expanded(text: str) -> str:
    """Return a text with `$(NAME)` replaced, as a kubelet does it; unknown names stay."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else os.environ.get(name, found.group(0))

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


class Turns:
    """The turns of one pod, as its agent sees them."""

    def __init__(self, orders: str, seconds: float) -> None:
        """`orders`: the file they come in. `seconds`: how long a turn is waited for."""
        self._orders = Path(orders)
        self._seconds = seconds
        self._number = 0
        self._told_to_stop = False
        self._reason = ""
        self._message = ""
        self._started_at = time.time()
        self._memory = limits.MemoryLimit(None, name="", parent=None)

    def running(self) -> dict[str, Any]:
        """Return what to tell while the command runs."""
        return {
            "number": self._number,
            "pod": os.environ.get("TRAINING_POD_UID", ""),
            "started_at": self._started_at,
        }

    def ended(self, status: int) -> dict[str, Any]:
        """Return what to tell once the command has ended; `status`: its wait status."""
        signalled = os.WIFSIGNALED(status)
        return {
            **self.running(),
            "waits": self._may_follow(status),
            "finished_at": time.time(),
            "exit_code": 128 + os.WTERMSIG(status) if signalled else os.WEXITSTATUS(status),
            "signal": os.WTERMSIG(status) if signalled else None,
            "reason": self._reason or "Error",
            "message": self._message[:1000],
        }

    def why(self, reason: str, message: str) -> None:
        """Note why the agent ended the command."""
        self._reason, self._message = reason, message

    def _may_follow(self, status: int) -> bool:
        """Return whether nothing but the process would have to be made anew."""
        if self._told_to_stop:
            return True
        never_started = os.WIFEXITED(status) and os.WEXITSTATUS(status) in (0, *_NEVER_STARTED)
        return not (never_started or self._memory.oom_killed)

    def order(self) -> Mapping[str, Any]:
        """Return the order for the present turn; empty without one."""
        order = read_json(self._orders) or {}
        return order if order.get("turn") == self._number else {}

    def is_to_stop(self) -> Mapping[str, Any]:
        """Return the order to end the command and stay, the first time it is seen; else empty."""
        order = self.order()
        if self._told_to_stop or order.get("do") != "stop":
            return {}
        self._told_to_stop = True
        self.why("Stopped", "")
        return order

    def await_next(self) -> Mapping[str, Any]:
        """Return what to go on as; empty where nothing follows. Nothing of the turn lives."""
        until = time.monotonic() + self._seconds
        while time.monotonic() < until:
            order = self.order()
            if order.get("do") == "restart":
                return order
            told = signal.sigtimedwait({signal.SIGCHLD, *_STOPPING}, _LOOK_SECONDS)
            if order.get("do") == "leave" or (told and told.si_signo in _STOPPING):
                break
        return {}

    def begin(self, order: Mapping[str, Any], *, emptied: str, removed: Path | None) -> None:
        """Become the next attempt; `emptied`, `removed`: what would be taken for its own."""
        for name, value in order["env"].items():
            os.environ[name] = expanded(str(value))
        self._number += 1
        self._told_to_stop = False
        self._reason = self._message = ""
        self._started_at = time.time()
        self._memory = limits.MemoryLimit(None, name="", parent=None)
        if removed is not None:
            removed.unlink(missing_ok=True)
        if emptied:
            for each in Path(emptied).iterdir():
                if each.is_dir() and not each.is_symlink():
                    shutil.rmtree(each, ignore_errors=True)
                else:
                    each.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            os.write(1, (BEGINS.format(order["attempt"]) + "\n").encode())

    @staticmethod
    def kill_rest(*, besides: int | None) -> None:
        """End everything below the agent but `besides`."""
        while True:
            tree = proc.descendants(os.getpid()) if proc.has_children() else {}
            tree.pop(besides or 0, None)
            if not tree:
                return
            for pid, start in tree.items():
                proc.kill_exactly(pid, start, signal.SIGKILL)
            for pid in tree:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            time.sleep(0.005)

"""What lives below an agent: how it is found, ended, and named where it lives on when it should not.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import os
import signal
import time

from airflow_training.agent import proc
from airflow_training.agent.child_calls import asked_children

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow_training.agent.limits import MemoryLimit
    from airflow_training.agent.loop import Loop
    from airflow_training.agent.preparing import Preparation

__all__ = ["ProcessTree", "names_of", "outlived_text", "outliving"]

_LEAVING_SECONDS = 0.2
"""How long children of a command that has ended may still be on their way out: helpers of Python's are."""
_MOST_NAMED = 5


class ProcessTree:
    """All that was started for an attempt and lives: its command with what that has started, and what works beside it."""

    def __init__(self, *, limit: MemoryLimit, loop: Loop, preparation: Preparation) -> None:
        self._limit = limit
        self._loop = loop
        self._preparation = preparation
        self.command: int | None = None
        """Pid of the command, once it was started."""
        self.spared: set[int] = set()
        """Children that are nothing of the attempt, and outlive it."""
        self.denied: dict[int, int] = {}
        """Pid -> start time of processes of another user, as below `sudo`: what we may not signal we cannot wait for."""

    def processes(self) -> dict[int, int]:
        """Return pid -> start time of everything that lives below."""
        # looking at every process of the machine is dear; mostly there is nobody to look for
        tree = proc.descendants(os.getpid()) if proc.has_children() else {}
        for pid in self._limit.members():
            start = proc.start_time(pid)
            if start is not None:
                tree.setdefault(pid, start)
        data = self._preparation.data
        for pid in self.spared if data is None else {*self.spared, *data.processes()}:
            tree.pop(pid, None)
        for pid, start in (*self._preparation.abandoned.items(), *self.denied.items()):
            if tree.get(pid) == start:
                del tree[pid]
        return tree

    def of_command(self) -> dict[int, int]:
        """Find what lives of the command: all of the tree but what works for the agent, as probes and uploads do."""
        tree = self.processes()
        if not tree:
            return tree
        # a number may have changed hands since its process was asked
        asked = {pid for pid, start in asked_children().items() if tree.get(pid) == start}
        for pid in {*self._loop.children, *asked} - {self.command}:
            if pid in tree:
                for each in (pid, *proc.descendants(pid)):
                    tree.pop(each, None)
        return tree

    def kill(self) -> None:
        """Return when nothing lives below: a process that forks meanwhile is found again."""
        self._kill(besides=None)

    def kill_rest(self) -> None:
        """Return when nothing lives below but the companion of the command."""
        companion = self._preparation.companion
        self._kill(besides=None if companion is None else companion.pid)

    def _kill(self, *, besides: int | None) -> None:
        pause = 0.001
        while True:
            tree = self.processes()
            tree.pop(besides or 0, None)
            if not tree:
                return
            self.denied.update(proc.signal_processes(tree, signal.SIGKILL))
            time.sleep(pause)  # no event says that a grandchild is gone
            pause = min(pause * 2, 0.05)


def outliving(processes: Callable[[], Mapping[int, int]]) -> dict[int, int]:
    """Return pid -> start time of what outlives its command; waits a moment for what is about to end.

    `processes`: what there is of the command at this moment. What ends by itself soon counts as gone.
    """
    until, pause = time.monotonic() + _LEAVING_SECONDS, 0.001
    while True:
        left = processes()
        if not left or time.monotonic() >= until:
            return {pid: at for pid, at in left.items() if not proc.ends_with_its_parent(pid)}
        time.sleep(pause)  # no event says that a grandchild is gone
        pause = min(pause * 2, 0.05)


def outlived_text(processes: Mapping[int, int]) -> str:
    """Say that processes outlived their command; "" for none."""
    if not processes:
        return ""
    count = (
        "1 process of it was" if len(processes) == 1 else f"{len(processes)} processes of it were"
    )
    return f"{count} still running and ended with it: {names_of(processes)}"


def names_of(processes: Mapping[int, int]) -> str:
    """Return `123 (python3 train.py), 124 (sh)` of some processes, for people."""
    first = sorted(processes)[:_MOST_NAMED]
    named = [f"{pid} ({proc.command_of(pid) or 'unknown'})" for pid in first]
    more = len(processes) - len(named)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])

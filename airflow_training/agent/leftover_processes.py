"""Processes that live on when they should not: after their command, or after SIGTERM. For one line in a log.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import signal
import time

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["kill_all", "names_of", "outlived_text", "outliving"]

_LEAVING_SECONDS = 0.2
"""How long children of a command that has ended may still be on their way out: helpers of Python's are."""
_MOST_NAMED = 5


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


def kill_all(processes: Callable[[], Mapping[int, int]]) -> None:
    """Return when there are none: a process that forks meanwhile is found again."""
    pause = 0.001
    while True:
        tree = processes()
        if not tree:
            return
        for pid, start in tree.items():
            proc.kill_exactly(pid, start, signal.SIGKILL)
        time.sleep(pause)  # no event says that a grandchild is gone
        pause = min(pause * 2, 0.05)


def names_of(processes: Mapping[int, int]) -> str:
    """Return `123 (python3 train.py), 124 (sh)` of some processes, for people."""
    first = sorted(processes)[:_MOST_NAMED]
    named = [f"{pid} ({proc.command_of(pid) or 'unknown'})" for pid in first]
    more = len(processes) - len(named)
    return ", ".join([*named, *([f"and {more} more"] if more else [])])

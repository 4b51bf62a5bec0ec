"""Ends a command that hangs: it reports progress no more, or a signal has stopped it.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

import time
from pathlib import Path

from airflow_training.agent.progress_tail import NewestProgress
from airflow_training.agent.stalls import StallWatch
from airflow_training.agent.stopped_processes import StoppedWatch, stopped_now

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from airflow_training.agent.loop import Loop
    from airflow_training.agent.order import Order
    from airflow_training.agent.process_tree import ProcessTree
    from airflow_training.agent.stack_dump import StackDump

__all__ = ["HangWatch"]


class HangWatch:
    """Looks again and again from the start of a command until its end."""

    def __init__(
        self,
        order: Order,
        *,
        loop: Loop,
        tree: ProcessTree,
        dump: StackDump,
        say: Callable[[str], None],
        told: Callable[[str], None],
        end: Callable[[str], None],
    ) -> None:
        """`told`: gets what stands still and is left alone, "" once it goes on. `end`: ends the command, with why."""
        self._order = order
        self._loop = loop
        self._tree = tree
        self._dump = dump
        self._say = say
        self._told = told
        self._end = end
        self._stall: StallWatch | None = None
        self._stopped = StoppedWatch(order.stall)
        self._is_told = False

    def begin(self) -> None:
        """The command runs."""
        if self._order.stall is not None and self._order.progress_file:
            newest = NewestProgress(Path(self._order.progress_file))
            self._stall = StallWatch(newest, self._order.stall)
            self._loop.after(self._stall.every_seconds, "stall", self._check_progress)
        self._loop.after(self._stopped.every_seconds, "stopped", self._check_stopped)

    def end(self) -> None:
        """Look no more: it has ended, or is to end."""
        self._loop.cancel("stall", "stopped")
        if self._is_told:
            self._is_told = False
            self._told("")

    def excuse(self, order: Mapping[str, Any]) -> None:
        """Let silence not count for so long, as others do not run that it trains with."""
        if self._stall is not None:
            seconds = float(order["seconds"])
            self._stall.excuse(int(order["number"]), seconds=seconds, now=time.monotonic())

    def _check_progress(self) -> None:
        """End a script that has stopped getting anywhere, once its log says where it stands."""
        if self._stall is None:
            return
        message = self._stall.poll(now=time.monotonic())
        if not message:
            self._loop.after(self._stall.every_seconds, "stall", self._check_progress)
            return
        self._loop.cancel("stopped")
        command = self._tree.command
        if command is not None and (also := stopped_now(command, self._tree.of_command)):
            message = f"{message}; {also}"
        self._say(f"{message}; ending it, as it hangs")
        self._dump.begin(lambda: self._end(message))

    def _check_stopped(self) -> None:
        """Say that a signal has stopped it; end it where the job has limits for what hangs and nothing else of it works or reports."""
        command = self._tree.command
        if command is None:
            return
        message = self._stopped.poll(
            command, self._tree.of_command, reported=self._reported(), now=time.monotonic()
        )
        if message and self._stopped.ends:
            self._loop.cancel("stall")
            self._say(f"{message}; ending it, as it hangs")
            self._end(message)  # its stacks cannot be read while it is stopped
            return
        if bool(message) != self._is_told:
            self._is_told = bool(message)
            self._say(message or "it goes on after a signal had stopped it")
            self._told(message)
        self._loop.after(self._stopped.every_seconds, "stopped", self._check_stopped)

    def _reported(self) -> int:
        """Return how large the progress file is now: at this look, not at the last one of `stall`."""
        try:
            return Path(self._order.progress_file).stat().st_size if self._stall else 0
        except OSError:
            return 0

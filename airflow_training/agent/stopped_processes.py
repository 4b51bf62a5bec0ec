"""When a command stands still because a signal has stopped it (state T), which it can report to nobody. It is told the time.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

from airflow_training.agent import proc
from airflow_training.agent.process_tree import names_of

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

__all__ = ["StoppedWatch", "stopped_now"]

_SECONDS = 30.0
_LEAST_SECONDS = 2.0
"""Between two looks: each asks for all processes of the machine."""
_IDLE = 0.05
"""Part of a core that what is not stopped may use while it only waits: a launcher looks at its ranks again and again."""


class StoppedWatch:
    """Watches the processes of one attempt. One that a debugger holds (state t) is not stopped."""

    def __init__(self, limits: Mapping[str, Any] | None) -> None:
        """`limits`: `checkpoint.progress` as the job has it; None: what is stopped is told, and left alone."""
        self._has_limits = limits is not None
        self._allowed = float((limits or {}).get("stallSeconds") or _SECONDS)
        self._looked_at: float | None = None
        self._stopped_seconds = 0.0
        self._reported_before = 0
        self._used_before = 0.0
        self._worked_seconds = 0.0
        self._idle = False
        self.every_seconds = min(10.0, max(_LEAST_SECONDS, self._allowed / 4))
        """How often to look."""

    @property
    def ends(self) -> bool:
        """Whether what is stopped counts as hanging: the job has limits, and nothing else of the command works or reports."""
        return self._has_limits and self._idle

    def poll(
        self,
        command: int,
        processes: Callable[[], Mapping[int, int]],
        *,
        reported: int = 0,
        now: float,
    ) -> str:
        """Return which of the processes were stopped for longer than is allowed; an empty text for none.

        `processes`: all that lives of the command. A wrapper waits asleep for the one that is stopped.
        `reported`: how much progress the command has reported, in bytes.
        """
        since = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        alive = processes()
        stopped = {pid: start for pid, start in alive.items() if proc.is_stopped(pid)}
        if not stopped:
            self._stopped_seconds = 0.0
            return ""
        used = sum(map(proc.cpu_seconds, alive))
        if not self._stopped_seconds:
            self._reported_before, self._worked_seconds = reported, 0.0
        else:  # what ended and nobody waited for takes its time with it
            self._worked_seconds += max(0.0, used - self._used_before)
        self._used_before = used
        # a machine that stood still, this program with it, has stopped nobody
        self._stopped_seconds += min(since, 2 * self.every_seconds)
        if self._stopped_seconds <= self._allowed:
            return ""
        # of one that has reported since, silence alone tells whether it hangs: it may wait for its data
        self._idle = (
            reported == self._reported_before
            and self._worked_seconds <= _IDLE * self._stopped_seconds
        )
        return f"{_told(stopped, alive, command)} for {self._stopped_seconds:.0f} s"


def stopped_now(command: int, processes: Callable[[], Mapping[int, int]]) -> str:
    """Return which of the processes are stopped at this moment; an empty text for none."""
    alive = processes()
    stopped = {pid: start for pid, start in alive.items() if proc.is_stopped(pid)}
    return _told(stopped, alive, command) if stopped else ""


def _told(stopped: Mapping[int, int], alive: Mapping[int, int], command: int) -> str:
    what = "it" if len(stopped) == len(alive) and command in stopped else names_of(stopped)
    return f"a signal has stopped {what} (state T, as SIGSTOP does)"

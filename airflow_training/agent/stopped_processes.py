"""When a command stands still because a signal has stopped all of it (state T), which it can report to nobody. It is told the time.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

from airflow_training.agent import proc

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

__all__ = ["StoppedWatch"]

_SECONDS = 30.0


class StoppedWatch:
    """Watches the processes of one attempt. One that a debugger holds (state t) is not stopped."""

    def __init__(self, limits: Mapping[str, Any] | None) -> None:
        """`limits`: `checkpoint.progress` as the job has it; None: what is stopped is told, and left alone."""
        self.ends = limits is not None
        """Whether what is stopped for too long counts as hanging."""
        self._allowed = float((limits or {}).get("stallSeconds") or _SECONDS)
        self._looked_at: float | None = None
        self._stopped_seconds = 0.0
        self.every_seconds = min(5.0, max(0.2, self._allowed / 6))
        """How often to look."""

    def poll(self, command: int, processes: Callable[[], Iterable[int]], *, now: float) -> str:
        """Return that all of a command was stopped for longer than is allowed; an empty text while it was not.

        `processes`: all that lives of it; asked only where the command itself is stopped.
        """
        since = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        if not (proc.is_stopped(command) and all(map(proc.is_stopped, processes()))):
            self._stopped_seconds = 0.0
            return ""
        # a machine that stood still, this program with it, has stopped nobody
        self._stopped_seconds += min(since, 2 * self.every_seconds)
        if self._stopped_seconds <= self._allowed:
            return ""
        return (
            f"a signal has stopped it (state T, as SIGSTOP does) for {self._stopped_seconds:.0f} s"
        )

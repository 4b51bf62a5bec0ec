"""When a script that reports progress has stopped getting anywhere. It is told the time.

Python 3.8 and newer: it runs inside pods too.
"""

from __future__ import annotations

from airflow_training.agent.progress_tail import NewestProgress

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

__all__ = ["SECTION_SECONDS", "StallWatch", "allowed_seconds"]

SECTION_SECONDS = {"init": 1800.0, "compile": 1800.0, "eval": 3600.0, "save": 1800.0}
"""How long a named section may take where the job says nothing else."""
_OTHER_SECTION_SECONDS = 3600.0
_WARM_UP_STEPS = 10
"""Before so many steps were timed the script still warms up: the limit of `init` holds."""


def allowed_seconds(
    limits: Mapping[str, Any], *, section: str, step_seconds: Sequence[float]
) -> float:
    """Return how long nothing new may come: max(stallSeconds, stallFactor times the p95 of the steps).

    `limits`: `checkpoint.progress` as the job has it; `step_seconds`: of the newest steps.
    """
    sections = {**SECTION_SECONDS, **(limits.get("sections") or {})}
    if section:
        return float(sections.get(section, _OTHER_SECTION_SECONDS))
    least = float(limits.get("stallSeconds") or 30.0)
    if len(step_seconds) < _WARM_UP_STEPS:
        return max(least, float(sections["init"]))
    p95 = sorted(step_seconds)[(95 * len(step_seconds) - 1) // 100]
    return max(least, float(limits.get("stallFactor") or 5.0) * p95)


class StallWatch:
    """Watches one attempt's progress file. A script that reports nothing is never called stalled."""

    def __init__(self, newest: NewestProgress, limits: Mapping[str, Any]) -> None:
        self._newest = newest
        self._limits = limits
        self._bytes = 0
        self._quiet_seconds = 0.0
        self._looked_at: float | None = None
        self._excuse = -1
        self._excused_until = 0.0
        self.every_seconds = min(5.0, max(0.2, float(limits.get("stallSeconds") or 30.0) / 6))
        """How often to look."""

    def excuse(self, number: int, *, seconds: float, now: float) -> None:
        """Let silence not count for so long: others do not run that it trains with. Each number counts once.

        0 seconds: they run again, and from now on silence counts.
        """
        if number != self._excuse:
            self._excuse, self._excused_until = number, now + seconds
            if seconds <= 0:
                self._quiet_seconds = 0.0

    def poll(self, *, now: float) -> str:
        """Return why the script counts as hanging, an empty text while it does not."""
        since = 0.0 if self._looked_at is None else now - self._looked_at
        self._looked_at = now
        document = self._newest.poll()
        if self._newest.seen_bytes != self._bytes:
            self._bytes, self._quiet_seconds = self._newest.seen_bytes, 0.0
            return ""
        if now < self._excused_until:
            return ""
        # a machine that stood still, this program with it, is no silence of the script
        self._quiet_seconds += min(since, 2 * self.every_seconds)
        if not document:
            return ""
        section = document.get("section")
        section = section if isinstance(section, str) else ""
        allowed = allowed_seconds(
            self._limits, section=section, step_seconds=self._newest.step_seconds
        )
        if self._quiet_seconds <= allowed:
            return ""
        where = f"in section {section!r}" if section else f"after step {document.get('step')}"
        return f"no progress for {self._quiet_seconds:.0f} s {where}; {allowed:.0f} s are allowed"

"""The clock of one holder: the time of day where it begins, and steady from then on.

Every wait of a run is a difference of its times. So it must not matter that somebody sets the clock
of the machine, back or forward; only the next holder begins at the new time.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from airflow_training.control.model import Ledger
from airflow_training.control.observations import Observation
from airflow_training.runtimes.clock import Clock

__all__ = ["RunClock", "newest_time"]


class RunClock:
    """Tells epoch seconds that neither jump nor go back."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset = 0.0
        self._sighted: dict[tuple[str, str], float] = {}

    def not_before(self, at: float) -> None:
        """Begin no earlier than what a holder before us wrote, whose clock may have been ahead."""
        self._offset = max(0.0, at - self._clock.now())

    def now(self) -> float:
        return self._offset + self._clock.now()

    def time_of_day(self) -> float:
        """The machine's clock in epoch seconds: only for display, nothing waits by it."""
        return self._clock.time_of_day()

    async def sleep(self, seconds: float) -> None:
        await self._clock.sleep(seconds)

    def by_this_clock(self, seen: Sequence[Observation]) -> tuple[Observation, ...]:
        """Observations without states that begin in the future: from then on they are waited for."""
        now = self.now()
        return tuple(
            dataclasses.replace(
                each, state_since=self._sighted.setdefault((each.uid, each.state), now)
            )
            if each.state_since > now
            else each
            for each in seen
        )


def newest_time(ledger: Ledger) -> float:
    """Return the latest moment of which the ledger tells that something happened then."""
    instances = (each.last_transition_at for each in ledger.instances.values())
    roles = (each.last_transition_at for each in ledger.roles.values())
    clocks = (ledger.job.active_time.at, ledger.job.training_time.at)
    return max(ledger.job.last_transition_at, *clocks, *instances, *roles)

"""Whether a run that waits has room to start beside those that run, and who of them makes room for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from airflow_training.control.model import TERMINAL_JOB_STATES

__all__ = ["QueueEntry", "StartClaim", "choose_preempted"]

_STAYS = frozenset({"Paused", *TERMINAL_JOB_STATES})
"""States in which a run that takes a place gives it up only by itself."""
_VISIBLE = frozenset({"Running", *TERMINAL_JOB_STATES})
"""States in which a runtime sees all that a started run has of its machine; before that (and when
it is paused or restarts) some of its processes do not exist now, but will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueEntry:
    """A run that waits, or takes a place."""

    uid: str
    priority: int
    ticket: int
    runtime: str
    wants: Mapping[str, float] | None
    """Of its machine, by the names of resources; None: enqueued a moment ago, known when it first asks."""
    state: str
    started_at: float = 0.0
    """0: it waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartClaim:
    """What a run needs to start: one of `slots` (0: any number run), and what it wants of what is free."""

    priority: int
    slots: int
    ahead: Sequence[QueueEntry]
    runtime: str
    wants: Mapping[str, float]
    free: Mapping[str, float] | None
    """What the runtime sees unused now; None, and what it does not name: holds nothing back."""

    def is_met(
        self,
        running: Sequence[QueueEntry],
        *,
        leaving: Set[str] = frozenset(),
        asked: Set[str] = frozenset(),
    ) -> bool:
        """Return whether it has that beside those that run, once others have given up their places.

        `leaving`: who is about to, by uid. `asked`: who would be asked to.
        """
        stay = [run for run in running if run.uid not in leaving | asked]
        if self.slots and len(stay) + len(self.ahead) >= self.slots:
            return False
        if not self.wants or self.free is None:
            return True
        claims = [*self.ahead, *(run for run in stay if run.state not in _VISIBLE)]
        claimed = [run.wants for run in claims if run.runtime == self.runtime]
        if None in claimed:
            return False
        # what exists of one that starts is free in part: it is counted for nothing here
        freed = [
            run.wants
            for run in running
            if run.runtime == self.runtime
            and (run.uid in leaving or (run.uid in asked and run.state in _VISIBLE))
        ]
        return all(
            amount + _sum(claimed, name) <= self.free[name] + _sum(freed, name)
            for name, amount in self.wants.items()
            if name in self.free
        )


def choose_preempted(
    claim: StartClaim, running: Sequence[QueueEntry], *, leaving: Set[str], finishing: Set[str]
) -> Sequence[QueueEntry]:
    """Return who is asked for its place: of a lower priority, the lowest and then the latest first, and as few as are enough.

    Nobody where all of them are not enough, or where those that are about to go anyway are: `leaving` were
    asked before, `finishing` end by themselves (both by uid).
    """
    going = leaving | finishing
    if claim.is_met(running, leaving=going):
        return ()
    lower = [
        run
        for run in running
        if run.priority < claim.priority and run.state not in _STAYS and run.uid not in going
    ]
    chosen: list[QueueEntry] = []

    def enough(runs: Sequence[QueueEntry]) -> bool:
        return claim.is_met(running, leaving=going, asked={run.uid for run in runs})

    for run in sorted(lower, key=lambda run: (run.priority, -run.started_at, -run.ticket)):
        chosen.append(run)
        if enough(chosen):
            break
    else:
        return ()
    for run in tuple(chosen):  # a small one that went first may not be needed beside a large one
        fewer = [each for each in chosen if each is not run]
        if enough(fewer):
            chosen = fewer
    return chosen


def _sum(wants: Sequence[Mapping[str, float] | None], name: str) -> float:
    return sum((each or {}).get(name, 0.0) for each in wants)

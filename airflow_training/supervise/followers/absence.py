"""Tells that nobody drove the run for a while, and what ended meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.model import Decision, Event, InstanceEntry
from airflow_training.control.observations import Observations
from airflow_training.control.transitions import ENDED
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.text import counted
from airflow_training.documents.times import utc_text
from airflow_training.supervise.absences import Absence
from airflow_training.supervise.followers.follower import Evidence, FollowedRun, Follower

__all__ = ["AbsenceFollower"]

_MOST_NAMED = 8
_LOOK_SECONDS = 2.0
"""For what has ended while its own process stood still: the runtime tells of it in a moment."""


class AbsenceFollower(Follower):
    """Tells it once, as soon as somebody has looked again: what ended is told after that."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._absence: Absence | None = None
        self._back_at = 0.0
        self._ended: set[InstanceKey] = set()
        self._running: Sequence[InstanceEntry] = ()

    async def evidence(self, seen: Observations | None) -> Evidence:
        if seen is None or not seen.reachable:
            return Evidence()
        now = self._run.now()
        if (absence := self._run.take_absence()) is not None:
            self._absence, self._back_at = self._absence or absence, now
            if absence.stalled:
                asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._run.wake)
        if self._absence is None:
            return Evidence()
        _, ledger = self._run.state()
        self._ended |= ended_meanwhile(ledger.instances, seen)
        self._running = still_running(ledger.instances, seen)
        if self._absence.stalled and now < self._back_at + _LOOK_SECONDS:
            return Evidence()
        return Evidence(events=self._events(now))

    def on_persisted(self, evidence: Evidence) -> None:
        if _is_told(evidence.events):
            self._absence, self._ended = None, set()

    async def explain(self, decision: Decision, *, now: float) -> Decision:
        """Return the last decision of a run that ended before this was told."""
        if _is_told(decision.events):
            return decision
        return replace(decision, events=(*self._events(now), *decision.events))

    def _events(self, now: float) -> Sequence[Event]:
        if self._absence is None:
            return ()
        ended = sorted(self._ended)
        return (_told(self._absence, ended, self._running, back_at=self._back_at, now=now),)


def _is_told(events: Sequence[Event]) -> bool:
    return any(each.reason == reasons.DRIVEN_AGAIN for each in events)


def ended_meanwhile(
    entries: Mapping[InstanceKey, InstanceEntry], seen: Observations
) -> set[InstanceKey]:
    """Return the instances that live as far as the ledger knows, and have ended or gone as is seen now."""
    alive = {each.uid for each in seen.instances if each.state not in ENDED}
    return {
        key
        for key, entry in entries.items()
        if entry.desired and entry.uid and entry.state not in ENDED and entry.uid not in alive
    }


def still_running(
    entries: Mapping[InstanceKey, InstanceEntry], seen: Observations
) -> Sequence[InstanceEntry]:
    """Return the instances that ran as far as the ledger knows, and that are seen alive."""
    alive = {each.uid for each in seen.instances if each.state not in ENDED}
    return [
        entry
        for entry in entries.values()
        if entry.desired and entry.uid in alive and entry.state == "running"
    ]


def _told(
    absence: Absence,
    ended: Sequence[InstanceKey],
    running: Sequence[InstanceEntry],
    *,
    back_at: float,
    now: float,
) -> Event:
    meanwhile = f"{counted(len(ended), 'instance')} ended meanwhile{_names(map(str, ended))}"
    goes_on = f"it goes on with {counted(len(running), 'instance')} that run"
    goes_on += "s" * (len(running) == 1) + _names(map(_running_text, running))
    seconds = max(0.0, back_at - absence.since)  # of two clocks: the run's, and the store's
    return Event(
        at=now,
        reason=reasons.DRIVEN_AGAIN,
        message=f"{absence}; it is driven again after {seconds:.0f} s, {meanwhile}; {goes_on}",
        level="warning",
        data={"since": absence.since, "why": absence.why, "ended": [str(each) for each in ended]},
    )


def _running_text(entry: InstanceEntry) -> str:
    since = "" if entry.started_at is None else f", since {utc_text(entry.started_at)}"
    return f"{entry.key} (attempt {entry.attempt}{since})"


def _names(names: Iterable[str]) -> str:
    """Return the first few, after a colon; nothing where there are none."""
    told = list(names)
    more = ", ..." * (len(told) > _MOST_NAMED)
    return f": {', '.join(told[:_MOST_NAMED])}{more}" if told else ""

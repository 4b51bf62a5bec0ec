"""Which clock runs while an instance is in which state, and what a clock has counted. Pure.

A clock runs only for its own cause: it counts some states of some instances, and stands still in all
others. What it has counted is in the ledger (`Elapsed`), so that the next holder of the lease goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.model import Elapsed, InstanceEntry
from airflow_training.control.observations import Observation

__all__ = [
    "BACK_OFF",
    "CANNOT_START",
    "CLOCKS",
    "DEADLINE",
    "DEPENDENCY",
    "LEAVE_OUT",
    "READY",
    "SCHEDULE",
    "STALL",
    "STANDINGS",
    "TRAINED",
    "UNKNOWN",
    "Standing",
    "StateClock",
    "amount_of",
    "due_at",
    "follow",
    "is_used_up",
    "seconds_of",
    "standing_of",
]

Standing = Literal[
    "queued",
    "paused",
    "waiting",
    "backingOff",
    "oldEnding",
    "notCreated",
    "noPlace",
    "starting",
    "running",
    "unknown",
    "ending",
    "ended",
]
"""What an instance does or waits for."""

STANDINGS: Mapping[Standing, str] = {
    "queued": "waiting in the queue",
    "paused": "paused",
    "waiting": "waiting for other roles",
    "backingOff": "in back-off",
    "oldEnding": "waiting for its old instance to end",
    "notCreated": "not created yet",
    "noPlace": "without a place",
    "starting": "starting",
    "running": "running",
    "unknown": "on a node that is not heard from",
    "ending": "ending",
    "ended": "ended",
}
"""In the words of a message: `worker-1 was ...`."""

InOutage = Literal["runs", "stands", "begins anew"]
"""Where nobody can ask, nothing is known of its cause: it stands, or begins anew with the first answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StateClock:
    """What counts as its own cause."""

    name: str
    """As the document spells it, where it does."""
    counts: frozenset[Standing]
    of: str
    """Whose states, for people."""
    in_outage: InOutage = "runs"
    """What it does while the runtime does not answer."""


def _clock(name: str, of: str, *counts: Standing, in_outage: InOutage = "runs") -> StateClock:
    return StateClock(name=name, of=of, counts=frozenset(counts), in_outage=in_outage)


DEADLINE = _clock("activeDeadlineSeconds", "at least one training instance", "running", "unknown")
TRAINED = _clock("trained_seconds", "the training instances", "running", "unknown")
DEPENDENCY = _clock(
    "dependsOn[].timeoutSeconds",
    "all instances that are still waited for",
    "running",
    in_outage="stands",
)
SCHEDULE = _clock(
    "scheduleTimeoutSeconds", "each instance", "notCreated", "noPlace", in_outage="stands"
)
LEAVE_OUT = _clock(
    "minReplicas",
    "each instance of an elastic role",
    "notCreated",
    "noPlace",
    "oldEnding",
    in_outage="stands",
)
UNKNOWN = _clock("UnknownTooLong", "each instance", "unknown", in_outage="begins anew")
BACK_OFF = _clock("restart.backoff", "each instance", "backingOff")
READY = _clock("restart.readyTimeoutSeconds", "each instance", "starting")
CANNOT_START = _clock("cannot start", "each pod", "starting", in_outage="begins anew")
STALL = _clock(
    "checkpoint.progress.stallSeconds", "each instance, while those it trains with run", "running"
)

CLOCKS = (
    DEADLINE,
    TRAINED,
    DEPENDENCY,
    SCHEDULE,
    LEAVE_OUT,
    UNKNOWN,
    BACK_OFF,
    READY,
    CANNOT_START,
    STALL,
)
"""Those of the agent and of a runtime too, which begin with what they count and end with it."""

_OTHERS = frozenset(
    {
        reasons.WAITING_FOR_DEPENDENCY,
        reasons.WAITING_FOR_ACTIVATION,
        reasons.WAITING_FOR_WAVE,
        reasons.WAITS_TO_JOIN,
        reasons.RECEIVED,
        reasons.REOPENED,
        reasons.RESUMED,
        "",
    }
)


def standing_of(entry: InstanceEntry, seen: Observation | None, *, job_state: str) -> Standing:
    """The activity of an instance, or its reason to wait. `seen`: the object of its attempt, if there is one."""
    if entry.final:
        return "ending" if entry.state == "terminating" else "ended"
    if job_state == "Queued":
        return "queued"
    if job_state == "Paused":
        return "paused"
    return _standing_of_attempt(entry, seen) if entry.desired else _standing_between(entry)


def _standing_of_attempt(entry: InstanceEntry, seen: Observation | None) -> Standing:
    if entry.state == "running":
        return "running"
    if entry.state == "unknown":
        return "unknown"
    if entry.state == "terminating":
        return "ending"
    if seen is None:
        return "notCreated"
    if not seen.scheduled:
        return "noPlace"
    return "waiting" if seen.held else "starting"


def _standing_between(entry: InstanceEntry) -> Standing:
    """Return the same where no object should exist yet."""
    old_is_there = entry.state in ("terminating", "unknown", "running")
    if old_is_there or entry.reason == reasons.WAITING_FOR_OLD_INSTANCE:
        return "oldEnding"
    return "waiting" if entry.reason in _OTHERS else "backingOff"


# what has been counted ---------------------------------------------------------------------------
def follow(
    elapsed: Elapsed,
    *,
    runs: bool,
    now: float,
    began: float | None = None,
    ended: float | None = None,
) -> Elapsed:
    """Advance a clock to now. `began`, `ended`: since when it runs, or stands; None: now.

    Neither lies before what was counted last, nor in the future: machines disagree about the time.
    """
    if runs == elapsed.runs:
        return elapsed
    since = began if runs else ended
    at = now if since is None else min(max(since, elapsed.at), now)
    first = at if elapsed.began_at is None else elapsed.began_at
    return Elapsed(
        seconds=elapsed.seconds if runs else elapsed.seconds + max(0.0, at - elapsed.at),
        at=at,
        runs=runs,
        began_at=first if runs else elapsed.began_at,
    )


def seconds_of(elapsed: Elapsed, *, now: float) -> float:
    """Seconds that a clock has counted."""
    return elapsed.seconds + (max(0.0, now - elapsed.at) if elapsed.runs else 0.0)


def due_at(elapsed: Elapsed, limit: float) -> float | None:
    """Return when the clock will have counted so much; None while it stands."""
    return elapsed.at + limit - elapsed.seconds if elapsed.runs else None


def is_used_up(elapsed: Elapsed, limit: float, *, now: float) -> bool:
    """Return whether a clock has counted so much."""
    at = due_at(elapsed, limit)
    return elapsed.seconds >= limit if at is None else now >= at


def amount_of(elapsed: Elapsed, *, now: float) -> str:
    """The counted time in words, with the time that has passed meanwhile where that is more."""
    counted = seconds_of(elapsed, now=now)
    passed = counted if elapsed.began_at is None else now - elapsed.began_at
    text = f"{counted:.0f} s"
    return f"{text} (of {passed:.0f} s that passed)" if passed - counted >= 1 else text

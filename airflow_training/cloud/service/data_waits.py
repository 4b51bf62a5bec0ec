"""What becomes of a run whose data does not come: told, waited for, paused; or stopped where it never will. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Literal

from airflow_training.control import reasons
from airflow_training.control.model import TERMINAL_JOB_STATES, Event

__all__ = ["DataFacts", "DataRequest", "DataWait", "judge_data_wait"]

_AWAY_SECONDS = 5.0
"""The sharing machine asks at least so often whether the run wants something."""
_FAILING_SECONDS = 15.0
"""So long a script has to end by itself after a read that failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFacts:
    """What is known of a run's data now. Times are epoch seconds."""

    now: float
    seen_at: float
    """When the sharing machine was heard of last; the run's start where it never was."""
    is_wanted: bool
    """Whether something is asked for that has not come."""
    run_state: str
    failure: tuple[str, str] | None = None
    """Reason and message of what will not come, or was read too early."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DataWait:
    """What was found and told so far."""

    since: float | None = None
    """The run waits since then; None: it does not."""
    counts_from: float = 0.0
    """From when on the patience counts: a pause that has ended begins it anew."""
    is_pause_asked: bool = False
    failed_at: float | None = None
    is_stop_asked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DataRequest:
    """What is asked of the run's loop."""

    kind: Literal["pause", "stop"]
    reason: str


def judge_data_wait(
    facts: DataFacts, before: DataWait, *, patience_seconds: float
) -> tuple[DataWait, Sequence[Event], DataRequest | None]:
    """Judge the facts of a moment; returns what is known from now on, what to tell and what to ask."""
    if facts.run_state in TERMINAL_JOB_STATES:
        return before, (), None
    if facts.failure is not None:
        return _judge_failure(facts, facts.failure, before)
    is_away = facts.is_wanted and facts.now - facts.seen_at > _AWAY_SECONDS
    if not is_away:
        if before.since is None:
            return before, (), None
        waited = facts.now - before.since
        back = Event(at=facts.now, reason=reasons.DATA_AVAILABLE, message=f"after {waited:.0f} s")
        return DataWait(), (back,), None
    if before.since is None:
        after = DataWait(since=facts.seen_at, counts_from=facts.seen_at)
        return after, (_waiting(facts),), None
    if before.is_pause_asked:
        if facts.run_state == "Paused":
            return replace(before, counts_from=facts.now), (), None
        if facts.now - before.counts_from > _AWAY_SECONDS:  # resumed
            return replace(before, is_pause_asked=False, counts_from=facts.now), (), None
        return before, (), None
    if facts.now - before.counts_from <= patience_seconds:
        return before, (), None
    why = (
        f"DataSourceGone: nobody has shared the run's data since {_time(before.since)}; where it was sent from:"
        " airflow-training cloud share RUN, and then airflow-training resume RUN; or airflow-training stop RUN"
    )
    asked = DataRequest(kind="pause", reason=why)
    return replace(before, is_pause_asked=True, counts_from=facts.now + 60.0), (), asked


def _judge_failure(
    facts: DataFacts, failure: tuple[str, str], before: DataWait
) -> tuple[DataWait, Sequence[Event], DataRequest | None]:
    reason, message = failure
    if before.failed_at is None:
        told = Event(at=facts.now, reason=reason, message=message, level="error")
        return replace(before, failed_at=facts.now), (told,), None
    if before.is_stop_asked or facts.now - before.failed_at < _FAILING_SECONDS:
        return before, (), None
    asked = DataRequest(kind="stop", reason=f"{reason}: {message}")
    return replace(before, is_stop_asked=True), (), asked


def _waiting(facts: DataFacts) -> Event:
    return Event(
        at=facts.now,
        reason=reasons.WAITING_FOR_DATA,
        message=f"nobody shares the run's data since {_time(facts.seen_at)};"
        " where it was sent from: airflow-training cloud share RUN",
        level="warning",
        data={"since": facts.seen_at},
    )


def _time(at: float) -> str:
    return datetime.fromtimestamp(at, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%SZ")

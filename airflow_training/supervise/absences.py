"""That nobody drives a run: since when, why, and what to type. Decides nothing."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.control.model import TERMINAL_JOB_STATES, InstanceEntry, JobEntry
from airflow_training.documents.times import utc_text
from airflow_training.state.records import Driver, RunRecord
from airflow_training.supervise.owners import LEASE_SECONDS, is_provably_dead, name_of, stopped_pid

__all__ = ["Absence", "absence_of", "absence_of_run", "what_to_type"]

_HAND_OVER_SECONDS = 60.0
"""For the next one to take up what was given up on purpose, as Airflow's `plan` does: a triggerer may be long in coming."""
_COMMAND_LINE = "cli"
"""Source of runs that no Airflow has started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Absence:
    """Nobody drives a run, though it has not ended."""

    since: float
    """When it was last known to be driven, epoch seconds."""
    why: str
    stalled: bool = False
    """Whoever drove it then is the one who does now, and has not looked again yet."""
    stopped_pid: int | None = None
    """The process that drives it, which a signal has stopped."""

    def __str__(self) -> str:
        return f"nobody has driven it since {utc_text(self.since)}: {self.why}"


def absence_of(
    driver: Driver, *, now: float, lease_seconds: float = LEASE_SECONDS
) -> Absence | None:
    """Return that nobody drives a run that goes on; None where somebody may.

    Who gave it up is followed by the next one, who gets a minute for that; and nobody has left what was
    never driven. `now`: of the store's clock.
    """
    if not driver.until:
        return None
    if not driver.owner:
        left = driver.until + _HAND_OVER_SECONDS <= now
        return Absence(since=driver.until, why="who drove it has left it") if left else None
    gone = is_provably_dead(driver.owner)
    if not gone and driver.until > now:
        return None
    name, stopped = name_of(driver.owner), None if gone else stopped_pid(driver.owner)
    if gone:
        why = f"{name} has ended"
    elif stopped is not None:
        why = f"{name} was stopped by a signal"
    else:
        why = f"{name} is not heard of: it has ended, sleeps, or cannot reach the store"
    return Absence(since=driver.until - lease_seconds, why=why, stopped_pid=stopped)


def absence_of_run(
    record: RunRecord,
    job: JobEntry,
    driver: Driver,
    *,
    now: float,
    instances: Iterable[InstanceEntry] = (),
) -> Absence | None:
    """Return that nobody drives a run; None where somebody may, and of one that is over.

    `instances`: what was done with them after the lease was renewed last shows that it was driven then.
    """
    never_begun = record.tombstone and job.state not in TERMINAL_JOB_STATES
    absence = None if job.is_over or never_begun else absence_of(driver, now=now)
    if absence is None:
        return None
    acted_at = max((each.last_transition_at for each in instances), default=0.0)
    return replace(absence, since=max(absence.since, min(acted_at, driver.until, now)))


def what_to_type(record: RunRecord, absence: Absence) -> str:
    """Return the commands that have a run go on that nobody drives, or end it."""
    name = shlex.quote(record.key.run_id)
    if record.runtime == SIMULATED:
        return "a simulation ends with the process that runs it: run it again"
    end = f"airflow-training kill {name} ends it"
    if absence.stopped_pid is not None:
        return f"kill -CONT {absence.stopped_pid} lets that process go on with it, {end}"
    if record.key.source == _COMMAND_LINE:
        return f"airflow-training run --from-run {name} --run-id {name} goes on with it, {end}"
    return f"Airflow's task reconcile of it goes on with it (clear it where it has ended), {end}"

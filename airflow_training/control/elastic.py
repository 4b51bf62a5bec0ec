"""An elastic role goes on with fewer instances while some cannot be had, and grows back. Pure.

What cannot be had is left out of the role's size and *joins*: it counts for nothing until it runs.
A job that has to restart for it does so with dense ranks, so the index that is left out is the
highest and rank 0 is always there. An instance that waits for a place is left out as it is: the
framework of an elastic role forms without it, and takes it in when it comes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.clocks import LEAVE_OUT, standing_of
from airflow_training.control.draft import Draft
from airflow_training.control.failures import Failure
from airflow_training.control.model import ActivePhase, InstanceEntry, ReducedSize
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.reason_facts import OWN_REASONS
from airflow_training.control.restarts import backoff_seconds
from airflow_training.control.transitions import next_attempt
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.frameworks.ranks import chief_role

__all__ = [
    "can_do_without",
    "can_shrink",
    "ends_for_size",
    "exclude_unreachable",
    "is_stuck",
    "may_create",
    "renumber",
    "reset_size",
    "retry_unjoined",
    "review_joining",
    "shrink_role",
    "wake_at_deadline",
]

_PATIENCE_SECONDS = 120.0
"""How long an instance may find no place before its role goes on without it."""
_TRY_AGAIN_SECONDS = 300.0
"""The longest wait before what could not be had is tried again."""
_TERMINAL_ROLE = frozenset({"Succeeded", "Failed", "Stopped"})


# may it ------------------------------------------------------------------------------------------
def can_shrink(draft: Draft, failure: Failure) -> bool:
    """Return whether the job may go on without the instance that failed, as far as that one goes.

    The failure must be the platform's. Another size helps neither a script with a bug nor one that
    needs more memory than it asked for.
    """
    platform = failure.failure_class in ("infrastructure", "preemption") or (
        failure.failure_class == "resource"
        and failure.known is not None
        and failure.known.level != "container"
    )
    return platform and _can_lose(draft, draft.spec.role(failure.role), 1)


def _can_lose(draft: Draft, role: ResolvedRole, number: int) -> bool:
    """Return whether a role may go on with so many fewer; one whose instances have begun to end not."""
    return (
        draft.spec.may_shrink(role.name)
        and draft.roles[role.name].replicas - number >= draft.spec.least_of(role.name)
        and _fits_gang(draft, number)
        and not any(entry.final for entry in draft.instances_of(role.name))
    )


def _fits_gang(draft: Draft, number: int) -> bool:
    if draft.spec.scheduling.gang == "none":
        return True
    return sum(each.replicas for each in draft.roles.values()) - number >= draft.spec.gang_size


# with fewer --------------------------------------------------------------------------------------
def review_joining(
    draft: Draft, observations: Observations | None, failures: Sequence[Failure]
) -> list[Failure]:
    """Count what has joined, and leave out what finds no place for too long.

    Returns `failures`, and as one more the instance of rank 0 where it is what finds no place:
    without it, the others have to restart.
    """
    found = list(failures)
    failed = {each.key for each in failures}
    for role in _roles(draft, observations):
        _welcome(draft, role.name)
        _exclude(draft, role, failed)
        first = draft.instances.get(InstanceKey(role.name, 0))
        if first is not None and first.key not in failed and _must_yield(draft, first):
            found.append(
                Failure(
                    key=first.key,
                    attempt_id=first.attempt_id,
                    at=draft.now,
                    reason=reasons.UNSCHEDULABLE,
                    message=first.message or f"no place within {_patience(draft.spec):g} s",
                    known=OWN_REASONS[reasons.UNSCHEDULABLE],
                    failure_class="resource",
                )
            )
    return found


def exclude_unreachable(draft: Draft, observations: Observations | None) -> None:
    """Leave out what may not be replaced, as its old instance is on a node nobody hears of."""
    for role in _roles(draft, observations):
        _exclude(draft, role, failed=())


def wake_at_deadline(draft: Draft) -> None:
    """Ask to be called when the next instance will have waited for too long."""
    if draft.job.paused_at is not None:
        return
    for role in draft.spec.roles:
        if draft.spec.may_shrink(role.name):
            waits = (_overdue_at(draft, entry) for entry in draft.instances_of(role.name))
            draft.wake(min((at for at in waits if at is not None and at > draft.now), default=None))


def shrink_role(draft: Draft, failure: Failure) -> None:
    """Let the role of a failed instance have one fewer; the caller restarts the job."""
    size = draft.roles[failure.role].replicas - 1
    _resize(draft, failure.role, size, f"{failure.key}: {failure.describe()}")


def renumber(draft: Draft) -> None:
    """Let the lowest indexes be the ones that count, in a job all of which is started again."""
    for name, role in draft.roles.items():
        if role.reduced is None:
            continue
        for position, entry in enumerate(draft.instances_of(name)):
            draft.put(replace(entry, joining=position >= role.replicas))


def reset_size(draft: Draft, name: str) -> None:
    """Forget that a role goes on with fewer: somebody starts it anew, or wants another size."""
    role = draft.roles[name]
    if role.reduced is None:
        return
    for entry in draft.instances_of(name):
        draft.put(replace(entry, joining=False))
    draft.set_role(name, replicas=role.reduced.full, reduced=None)


def _roles(draft: Draft, observations: Observations | None) -> Sequence[ResolvedRole]:
    """Return the roles whose size may change now."""
    if observations is None or not observations.reachable or draft.job.paused_at is not None:
        return ()
    return [
        role
        for role in draft.spec.roles
        if draft.spec.may_shrink(role.name) and draft.roles[role.name].state not in _TERMINAL_ROLE
    ]


def _exclude(draft: Draft, role: ResolvedRole, failed: Collection[InstanceKey]) -> None:
    late = [
        entry
        for entry in draft.instances_of(role.name)
        if entry.key not in failed and not _leads(draft, entry) and _is_overdue(draft, entry)
    ]
    if not late or not _can_lose(draft, role, len(late)):
        return
    for entry in late:
        draft.put(replace(entry, joining=True))
    names = ", ".join(f"{role.name}-{entry.index}" for entry in late)
    _resize(draft, role.name, draft.roles[role.name].replicas - len(late), f"no place for {names}")


def _must_yield(draft: Draft, first: InstanceEntry) -> bool:
    """Return whether rank 0 finds no place, while enough others have one that it could take."""
    role = draft.spec.role(first.role)
    running = sum(entry.was_running for entry in draft.instances_of(role.name) if not entry.joining)
    return (
        first.desired
        and _leads(draft, first)
        and _is_overdue(draft, first)
        and running >= draft.spec.least_of(role.name)
        and _can_lose(draft, role, 1)
    )


def _leads(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether the others meet at this instance."""
    return entry.index == 0 and entry.role == chief_role(draft.spec)


def _is_overdue(draft: Draft, entry: InstanceEntry) -> bool:
    at = _overdue_at(draft, entry)
    return at is not None and draft.now >= at


def _overdue_at(draft: Draft, entry: InstanceEntry) -> float | None:
    """Return when an instance that finds no place, or may not be replaced, has waited for too long."""
    key = entry.key
    if entry.final or entry.joining:
        return None
    phase = entry.phase
    if not isinstance(phase, ActivePhase):
        old = draft.occupied.get(key)
        if old is None or not is_stuck(old):
            return None
        return max(old.state_since, draft.job.answers_since) + _patience(draft.spec)
    standing = standing_of(entry, draft.current.get(key), job_state=draft.job.state)
    if standing not in LEAVE_OUT.counts:
        return None
    if ends_for_size(draft, entry):
        return phase.desired_since
    return phase.desired_since + _patience(draft.spec)


def ends_for_size(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether an instance is one that no machine could take, and the job does not wait for one."""
    return entry.reason == reasons.NEVER_FITS and draft.spec.scheduling.never_fits == "Fail"


def can_do_without(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether its role may go on without it and whatever else of it no machine could take."""
    team = [each for each in draft.instances_of(entry.role) if not (each.final or each.joining)]
    number = sum(ends_for_size(draft, each) for each in team)
    return number < len(team) and _can_lose(draft, draft.spec.role(entry.role), number)


def is_stuck(old: Observation) -> bool:
    """Return whether nobody can tell when an object of an older attempt will be gone."""
    return old.state == "unknown" or old.reason == reasons.OVERDUE


def _patience(job: ResolvedJob) -> float:
    return min(_PATIENCE_SECONDS, job.scheduling.schedule_timeout_seconds)


def _resize(draft: Draft, name: str, size: int, why: str) -> None:
    role = draft.roles[name]
    before = role.reduced or ReducedSize(full=role.replicas)
    reduced = replace(
        before, why=why, since=draft.now, try_at=draft.now + _pause(draft, before.tries)
    )
    draft.set_role(name, replicas=size, reduced=reduced)
    draft.record_event(
        reasons.GOES_ON_WITH_FEWER,
        f"{size} of {reduced.full} instances; {why}",
        role=name,
        level="warning",
        replicas=size,
        full=reduced.full,
    )


# growing back --------------------------------------------------------------------------------------
def may_create(draft: Draft, role: str) -> bool:
    """Return whether what a role goes on without may be created now.

    Taking it in costs a restart, so the others have committed a newer checkpoint before: the job
    gets on, however often an instance comes and goes. Without checkpoints it would lose its work.
    """
    reduced = draft.roles[role].reduced
    if reduced is None:
        return True
    if draft.now < reduced.try_at:
        draft.wake(reduced.try_at)
        return False
    return draft.spec.checkpoint is not None and draft.job.recovery.progressed_at > reduced.since


def retry_unjoined(draft: Draft, failure: Failure) -> None:
    """Try what failed before it had joined again; the others never noticed, so it is free."""
    entry = draft.instances[failure.key]
    reduced = draft.roles[failure.role].reduced
    assert reduced is not None  # noqa: S101 - only then does anything join
    pause = _pause(draft, reduced.tries + 1)
    draft.set_role(
        failure.role, reduced=replace(reduced, tries=reduced.tries + 1, try_at=draft.now + pause)
    )
    draft.record_event(
        reasons.JOIN_FAILED,
        f"{failure.describe()}, next attempt in {pause:g} s",
        of=entry,
        level="warning",
        failure_class=failure.failure_class,
        exit_code=failure.exit_code,
        signal=failure.signal,
    )
    next_attempt(draft, entry, reason=reasons.WAITS_TO_JOIN, message=failure.describe())


def _welcome(draft: Draft, name: str) -> None:
    """Count what runs by now, and stop growing once the first has ended."""
    role = draft.roles[name]
    if role.reduced is None:
        return
    joining = [entry for entry in draft.instances_of(name) if entry.joining]
    came = [entry for entry in joining if entry.was_running or entry.final]
    if came:
        _count(draft, name, came)
    if any(entry.final for entry in draft.instances_of(name)):
        for entry in joining:
            if entry not in came:
                gone = replace(entry, retired=True, joining=False)
                next_attempt(draft, gone, reason=reasons.NOT_NEEDED)
        draft.set_role(name, reduced=None)


def _count(draft: Draft, name: str, came: Sequence[InstanceEntry]) -> None:
    for entry in came:
        draft.put(replace(entry, joining=False))
    role = draft.roles[name]
    size, full = role.replicas + len(came), role.desired
    draft.set_role(name, replicas=size, reduced=role.reduced if size < full else None)
    draft.record_event(
        reasons.GROWS_BACK if size < full else reasons.BACK_TO_FULL_SIZE,
        f"{size} of {full} instances; {', '.join(f'{name}-{entry.index}' for entry in came)} joined",
        role=name,
        replicas=size,
        full=full,
    )


def _pause(draft: Draft, tries: int) -> float:
    return min(_TRY_AGAIN_SECONDS, backoff_seconds(draft.spec.restart, tries))

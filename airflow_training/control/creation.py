"""What should exist and does not: creates, holds and releases instances in the order of the roles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.actions import Create, Release, RestartProcess
from airflow_training.control.attempts import AttemptId
from airflow_training.control.clocks import SCHEDULE, STANDINGS, amount_of, standing_of
from airflow_training.control.dependencies import (
    DependencyState,
    dependency_key,
    initializer_answer,
    with_upstream_reason,
)
from airflow_training.control.diagnosed import is_revocable
from airflow_training.control.draft import Draft
from airflow_training.control.elastic import (
    can_do_without,
    ends_for_size,
    is_stuck,
    may_create,
)
from airflow_training.control.ending import close_role, finish
from airflow_training.control.gates import Gate, gate_of
from airflow_training.control.in_place import ANSWER_SECONDS
from airflow_training.control.model import (
    ActivePhase,
    AttemptHost,
    InstanceEntry,
    PendingPhase,
    RoleEntry,
)
from airflow_training.control.observations import InstanceState, Observations
from airflow_training.control.outcomes import apply_policies, verdict_of
from airflow_training.control.root_cause import NEVER_FITS_CAUSE, cause_of_reason
from airflow_training.control.scaling import add_missing, remove_surplus
from airflow_training.control.transitions import ENDED, fail_for_good, is_vacant
from airflow_training.control.waits import NUMBERS_SECONDS, Wait, differ_in_numbers
from airflow_training.control.waves import waves
from airflow_training.documents.resolved import ResolvedDependency, ResolvedRole

__all__ = ["start_missing"]

_TERMINAL_ROLE = frozenset({"Succeeded", "Failed", "Stopped"})


def start_missing(draft: Draft, observations: Observations | None) -> None:
    """Bring every role to its wanted instances, as far as dependencies and old objects allow.

    Nothing is created before the first snapshot, and nothing while the runtime does not answer.
    """
    for role in draft.spec.roles:
        if draft.roles[role.name].state not in _TERMINAL_ROLE:
            add_missing(draft, role)
            remove_surplus(draft, role)
    names_waiting = {each.name for each in draft.spec.roles if _wants_something(draft, each.name)}
    for role in draft.spec.roles:
        if role.name not in names_waiting and draft.roles[role.name].waits:
            draft.set_role(role.name, waits={})
    if not names_waiting:
        return
    can_create = observations is not None and observations.reachable and draft.job.paused_at is None
    blocked = _blocked_until(draft)
    gangs = draft.spec.scheduling.gang != "none" and draft.spec.scheduling.startup == "perWave"
    lost = False
    # upstream first: a role that is lost takes those that wait for it along in the same pass
    for wave in waves(draft.spec):
        members = [draft.spec.role(name) for name in wave]
        for role in members:
            if role.name in names_waiting:
                together = members if gangs else []
                lost |= _advance(draft, role, wave=together, can_create=can_create, blocked=blocked)
    if lost:
        apply_policies(draft)
    elif can_create:
        _check_scheduling(draft)


def _wants_something(draft: Draft, name: str) -> bool:
    role = draft.roles[name]
    if role.state in _TERMINAL_ROLE:
        return False
    return role.reduced is not None or any(
        not head.final and (not head.released or head.state == "pending")
        for head, _ in draft.census.get(name, ())
    )


def _blocked_until(draft: Draft) -> str:
    """Return why nothing at all may be created now; empty when nothing holds the whole job.

    After a restart of the whole job no old instance may meet a new one.
    """
    if draft.job.restart_at is not None and draft.now < draft.job.restart_at:
        draft.wake(draft.job.restart_at)
        return reasons.BACKOFF
    now = (draft.job.epoch, draft.job.job_attempt)
    for key, seen in draft.occupied.items():
        entry = draft.instances.get(key)
        if entry is not None and entry.joining and is_stuck(seen):
            continue  # the others go on without it, and it can neither meet them nor save
        if seen.state not in ENDED and (seen.epoch, seen.job_attempt) != now:
            return reasons.WAITING_FOR_OLD_INSTANCE
    return ""


def _advance(
    draft: Draft,
    role: ResolvedRole,
    *,
    wave: Sequence[ResolvedRole],
    can_create: bool,
    blocked: str,
) -> bool:
    """Move the waiting instances of one role on; return whether some of them are lost for good."""
    team = [entry for entry in draft.instances_of(role.name) if not entry.final]
    absent = [entry for entry in team if not entry.desired]
    unreleased = [entry for entry in team if entry.desired and not entry.phase.released]
    free = {entry.index for entry in absent if not _held_back(draft, entry)}
    gate = gate_of(
        role,
        roles=draft.roles,
        counts=draft.census,
        held_otherwise=bool(blocked)
        or not can_create
        or not (free or unreleased)
        or _gang_waits(draft),
        now=draft.now,
        lives=draft.lives,
        wave=wave,
    )
    gate = replace(
        gate,
        waiting=[
            with_upstream_reason(each, draft.instances_of(each.dependency.role))
            for each in gate.waiting
        ],
    )
    if absent or unreleased:
        problem = gate.failed or gate.timed_out
        draft.set_role(role.name, waits=gate.waits)
        if problem is not None and draft.job.paused_at is None:
            _lose(draft, role, [*absent, *unreleased], problem, late=gate.failed is None)
            return True
        draft.wake(gate.wake_at)
    else:
        draft.set_role(role.name, waits={})
    may_create = can_create and not blocked
    hold = draft.spec.scheduling.startup == "createAllHold"
    for entry in absent:
        # only a new instance can be held
        holds = hold and not entry.host.uid
        if may_create and entry.index in free and (gate.open or holds):
            _create(draft, _want(draft, entry, released=gate.open))
        else:
            _show_waiting(draft, entry, gate, blocked=blocked)
    if can_create:
        _repeat(draft, role, [entry for entry in team if entry.desired], gate)
    return False


def _held_back(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether an old object, backoff or a diagnosis keeps this one from being created."""
    if entry.joining and not may_create(draft, entry.role):
        return True
    backoff = _backoff_until(draft, entry)
    if backoff is not None:
        draft.wake(backoff)
        return True
    if is_revocable(draft, entry):
        return True
    return not is_vacant(draft, entry.key)


def _backoff_until(draft: Draft, entry: InstanceEntry) -> float | None:
    at = entry.phase.replace_at if isinstance(entry.phase, PendingPhase) else None
    return at if at is not None and draft.now < at else None


def _gang_waits(draft: Draft) -> bool:
    """Return whether a gang has not been admitted: then no dependency is to blame yet."""
    return draft.spec.scheduling.gang != "none" and any(
        not seen.scheduled for seen in draft.current.values() if seen.state == "pending"
    )


def _want(draft: Draft, entry: InstanceEntry, *, released: bool) -> InstanceEntry:
    """Write down that the next attempt is to exist, before it does."""
    if draft.job.started_at is None:
        draft.job = replace(draft.job, started_at=draft.now)
    host = entry.host
    if host.uid:
        host = AttemptHost(host.uid, until=draft.now + ANSWER_SECONDS)
    draft.wake(host.until)
    return draft.put(
        replace(
            entry,
            phase=ActivePhase(desired_since=draft.now, released=released),
            attempt_id=AttemptId(
                draft.job.epoch, draft.job.job_attempt, entry.attempt, draft.generation
            ),
            host=host,
            before=None,
            state="pending",
            reason=reasons.CREATING,
            message="",
        )
    )


def _create(draft: Draft, entry: InstanceEntry) -> None:
    if entry.host.uid:
        draft.actions.append(
            RestartProcess(key=entry.key, attempt_id=entry.attempt_id, uid=entry.host.uid)
        )
        return
    draft.actions.append(
        Create(key=entry.key, attempt_id=entry.attempt_id, held=not entry.phase.released)
    )


def _repeat(draft: Draft, role: ResolvedRole, wanted: list[InstanceEntry], gate: Gate) -> None:
    """Order again what may have been lost, and release what waited for the gate."""
    answer = initializer_answer(role)
    for entry in wanted:
        key = entry.key
        seen = draft.current.get(key)
        phase = entry.phase
        if isinstance(phase, ActivePhase) and not phase.released and gate.open:
            entry = draft.put(replace(entry, phase=replace(phase, released=True)))
            draft.record_event(reasons.RELEASED, f"receives {answer}", of=entry)
        if seen is None:
            if not entry.uid and is_vacant(draft, key):
                _create(draft, _show_refused(draft, entry))
        elif (
            entry.phase.released and seen.held and entry.state == "pending"
        ):  # else that is old news
            draft.actions.append(
                Release(
                    key=entry.key,
                    uid=seen.uid,
                    attempt=entry.attempt,
                    answer=answer,
                )
            )


def _show_refused(draft: Draft, entry: InstanceEntry) -> InstanceEntry:
    """Return it with why the runtime does not make it for now; told once, and when the words change."""
    refused, phase = draft.refused.get((entry.key, entry.attempt_id)), entry.phase
    if refused is None or not isinstance(phase, ActivePhase):
        return entry
    wait, before = Wait(refused.reason, refused.message), Wait(entry.reason, entry.message)
    if wait == before:
        return entry
    if phase.refusal_announced_at is not None and differ_in_numbers(wait, before):
        due_at = phase.refusal_announced_at + NUMBERS_SECONDS
        if draft.now < due_at:  # who uses how much of a quota changes all the time
            draft.wake(due_at)
            return entry
    told_at = _told_of_another_at(draft, entry, wait)
    if told_at is None:
        draft.record_event(wait.reason, wait.message, of=entry, level="warning")
        told_at = draft.now
    since = draft.now if phase.refused_since is None else phase.refused_since
    phase = replace(phase, refused_since=since, refusal_announced_at=told_at)
    return draft.put(replace(entry, reason=wait.reason, message=wait.message, phase=phase))


def _told_of_another_at(draft: Draft, entry: InstanceEntry, wait: Wait) -> float | None:
    """When it was told lately that another instance of the role waits for the same: one event tells of all."""
    for each in draft.instances_of(entry.role):
        if each.key == entry.key or not isinstance(each.phase, ActivePhase):
            continue
        told_at = each.phase.refusal_announced_at
        is_recent = told_at is not None and draft.now < told_at + NUMBERS_SECONDS
        if is_recent and differ_in_numbers(wait, Wait(each.reason, each.message)):
            return told_at
    return None


def _show_waiting(draft: Draft, entry: InstanceEntry, gate: Gate, *, blocked: str) -> None:
    """Keep state and reason of an instance that has no object of its own true."""
    old = draft.occupied.get(entry.key)
    if old is not None and old.state not in ENDED:
        if not is_stuck(old):
            _show(draft, entry, "terminating", entry.reason, entry.message)
            return
        message = f"its old instance on node {old.node or '(unknown)'} may still run"
        if old.reason == reasons.OVERDUE:
            message = f"its old instance is not gone: {old.message}"
        if entry.reason != reasons.WAITING_FOR_OLD_INSTANCE:
            draft.record_event(reasons.WAITING_FOR_OLD_INSTANCE, message, of=entry, level="warning")
        _show(draft, entry, old.state, reasons.WAITING_FOR_OLD_INSTANCE, message)
        return
    reason, message, role_waits = entry.reason, entry.message, False
    if draft.job.paused_at is not None:
        reason = draft.job.reason
    elif blocked or _backoff_until(draft, entry) is not None:
        reason = blocked or reasons.BACKOFF
    elif entry.joining:
        reason = reasons.WAITS_TO_JOIN
    elif gate.waiting:
        reason, message = reasons.WAITING_FOR_DEPENDENCY, gate.waiting[0].message
        role_waits = True
    elif gate.wave_waits:
        reason, message, role_waits = reasons.WAITING_FOR_WAVE, "", True
    elif not gate.activated:
        reason, message, role_waits = reasons.WAITING_FOR_ACTIVATION, "", True
    _show(draft, entry, "pending", reason, message)
    role = draft.roles[entry.role]
    if role_waits and (role.reason, role.message) != (reason, message):
        draft.set_role(entry.role, reason=reason, message=message)


def _show(
    draft: Draft, entry: InstanceEntry, state: InstanceState, reason: str, message: str
) -> None:
    if (entry.state, entry.reason, entry.message) != (state, reason, message):
        draft.put(replace(entry, state=state, reason=reason, message=message))


def _lose(
    draft: Draft,
    role: ResolvedRole,
    entries: list[InstanceEntry],
    problem: DependencyState,
    *,
    late: bool,
) -> None:
    """A dependency can no longer be met, or not in time: those that wait for it have failed."""
    reason = reasons.DEPENDENCY_TIMEOUT if late else reasons.DEPENDENCY_FAILED
    message = problem.message
    if late:
        message = _late(problem.dependency, draft.roles[role.name], message, now=draft.now)
    for entry in entries:
        told = f"never started: {message}" if not entry.attempt else message
        fail_for_good(draft, replace(entry, reason=reason, message=told))
    verdict = verdict_of(draft, role)
    if verdict is not None and verdict.state == "Failed":
        close_role(draft, role.name, "Failed", reason=reason, message=message)


def _late(dependency: ResolvedDependency, entry: RoleEntry, message: str, *, now: float) -> str:
    """Return which clock is used up, and by what."""
    waited = entry.waits[dependency_key(dependency)]
    return (
        f"timeoutSeconds {dependency.timeout_seconds:g} is used up: {dependency.role} was running"
        f" for {amount_of(waited, now=now)}, and only {message}"
    )


def _check_scheduling(draft: Draft) -> None:
    """End a job whose instances find no place for too long."""
    limit = draft.spec.scheduling.schedule_timeout_seconds
    for entry in draft.instances.values():
        phase = entry.phase
        if not isinstance(phase, ActivePhase) or entry.joining or entry.state != "pending":
            continue
        seen = draft.current.get(entry.key)
        standing = standing_of(entry, seen, job_state=draft.job.state)
        if standing not in SCHEDULE.counts:
            continue
        if ends_for_size(draft, entry) and not can_do_without(draft, entry):
            _fail_for_capacity(draft, entry, reasons.NEVER_FITS, f"{entry.key}: {entry.message}")
            return
        since = min(phase.desired_since, draft.job.crowded_since or phase.desired_since)
        if draft.now < since + limit:
            draft.wake(since + limit)
            continue
        message = (
            f"{entry.key} found no place within {limit:g} s"
            f" (scheduleTimeoutSeconds): it was {STANDINGS[standing]}"
        )
        words = entry.message if seen is None else seen.message
        if words:
            message = f"{message}: {words}"
        _fail_for_capacity(draft, entry, reasons.SCHEDULE_TIMEOUT, message)
        return


def _fail_for_capacity(draft: Draft, entry: InstanceEntry, reason: str, message: str) -> None:
    """End the job for an instance that finds no place."""
    finish(
        draft,
        "Failed",
        reason=reason,
        message=message,
        root_cause=cause_of_reason(
            reason=reason,
            message=message,
            at=draft.now,
            role=entry.role,
            index=entry.index,
            attempt=entry.attempt,
            cause=NEVER_FITS_CAUSE if entry.reason == reasons.NEVER_FITS else "",
        ),
    )

"""Takes the observations into the ledger: what each attempt does now, and which objects are not ours.

Drops what belongs to older attempts, epochs and generations. Reports failures; judges none.
"""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.diagnosed import class_of
from airflow_training.control.draft import Draft
from airflow_training.control.ending import termination
from airflow_training.control.environment import environment_state, read_records
from airflow_training.control.failures import (
    Failure,
    classify,
    ended_by_term,
)
from airflow_training.control.grace import killed_after_grace, told_by_agent
from airflow_training.control.memory import memory_limit_of
from airflow_training.control.model import (
    NOT_READY,
    OWN_INSTANCE,
    ActivePhase,
    AttemptEnd,
    FinalPhase,
    InstanceEntry,
    Readiness,
)
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.readiness import observed_hardware
from airflow_training.control.reason_facts import NODE_LOST
from airflow_training.control.transitions import ENDED, delete_initializer
from airflow_training.documents.quantities import bytes_text
from airflow_training.documents.resolved import FailureClass
from airflow_training.documents.text import counted

__all__ = ["apply_observations"]

_NEVER_THERE = frozenset({reasons.CREATE_FAILED, reasons.CANNOT_BE_CREATED})


def apply_observations(draft: Draft, observations: Observations) -> list[Failure]:
    """Update the draft from a snapshot; return new failures, the earliest first."""
    draft.objects = {each.uid: each for each in observations.instances}
    known = 0
    attention: list[InstanceEntry] = []
    objects = draft.objects
    for entry in draft.instances.values():
        if entry.uid and (seen := objects.get(entry.uid)) is not None:
            known += 1
            if _is_known(seen, entry):
                if entry.state == "running":
                    continue
                if entry.state == "pending" and entry.desired:
                    draft.current[entry.key] = seen
                    continue
            attention.append(entry)
        elif entry.uid or _may_appear(entry):
            attention.append(entry)
    if known != len(objects):
        _sort_out_unknown(draft)
    _record_created(draft, attention)
    failures = []
    for entry in attention:
        failure = _inspect(draft, entry, reachable=observations.reachable)
        if failure is not None:
            failures.append(failure)
    order = {role.name: number for number, role in enumerate(draft.spec.roles)}
    return sorted(
        failures,
        # at the same moment: what was told to end is more likely a consequence than the first
        key=lambda f: (
            f.at,
            ended_by_term(signal=f.signal, exit_code=f.exit_code),
            order[f.role],
            f.index,
        ),
    )


def _is_known(seen: Observation, entry: InstanceEntry) -> bool:
    """Return whether it says nothing new; asked of every instance in each decision."""
    readiness = entry.phase.readiness
    return (
        seen.state == entry.state
        and seen.reason == entry.reason
        and seen.message == entry.message
        and seen.node == entry.node
        and seen.address == entry.address
        and seen.address_live == readiness.address_live
        and seen.port_open == readiness.port_open
        and seen.ready == readiness.ready
    )


def _record_created(draft: Draft, attention: list[InstanceEntry]) -> None:
    """Say that the instances of a role were created, once all that are expected have appeared."""
    first = [entry for entry in attention if _is_created(draft, entry)]
    for role in dict.fromkeys(entry.role for entry in first):
        own = [entry for entry in first if entry.role == role]
        created = draft.roles[role].created + len(own)
        keys = {entry.key for entry in own}
        awaited = any(
            each.role == role and each.desired and not each.uid and each.key not in keys
            for each in draft.instances.values()
        )
        draft.set_role(role, created=created if awaited else 0)
        if not awaited:
            held = ", held" if not all(each.phase.released for each in own) else ""
            draft.record_event(
                reasons.INSTANCES_CREATED, counted(created, "instance") + held, role=role
            )


def _is_created(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether the object that an entry waits for is seen for the first time."""
    seen = None if entry.uid or not entry.desired else draft.current.get(entry.key)
    return seen is not None and seen.reason not in _NEVER_THERE


def _sort_out_unknown(draft: Draft) -> None:
    """Find objects that no entry knows yet: the current attempt's first sighting, or not ours."""
    for seen in draft.objects.values():
        key = seen.key
        entry = draft.instances.get(key)
        if entry is not None and entry.uid == seen.uid:
            continue
        rival = draft.current.get(key)
        if entry is not None and entry.host.uid == seen.uid:
            draft.occupy(seen)
        elif entry is None or not _is_expected(entry, seen):
            draft.mark_for_deletion(seen)
            draft.occupy(seen)
        elif rival is None or (seen.generation, rival.uid) > (rival.generation, seen.uid):
            draft.current[key] = seen
            if rival is not None:
                draft.mark_for_deletion(rival)
        else:
            draft.mark_for_deletion(seen)
        if entry is not None and seen.state in ENDED and (killed := told_by_agent(seen)):
            _record_kill(draft, entry, killed)


def _record_kill(draft: Draft, entry: InstanceEntry, killed: str) -> None:
    draft.record_event(reasons.GRACE_PERIOD_EXCEEDED, killed, of=entry, level="warning")


def _is_expected(entry: InstanceEntry, seen: Observation) -> bool:
    """Return whether an object is the one that an entry waits for."""
    expected = not entry.uid and _may_appear(entry)
    same_attempt = seen.attempt_id == entry.attempt_id
    # 0: made without a lease; anything else below ours comes from a holder that lost it
    same_holder = seen.generation == 0 or seen.generation >= entry.generation
    return expected and same_attempt and same_holder and not entry.retired


def _may_appear(entry: InstanceEntry) -> bool:
    """Return whether an object that nobody has seen yet may still come."""
    return entry.desired or entry.phase.deadline_at is not None


def _inspect(draft: Draft, entry: InstanceEntry, *, reachable: bool) -> Failure | None:
    key = entry.key
    seen = draft.objects.get(entry.uid) if entry.uid else draft.current.get(key)
    if seen is not None:
        draft.current[key] = seen
    phase = entry.phase
    if not isinstance(phase, ActivePhase):
        if seen is not None:
            _look_at_closed(draft, entry, seen)
        return None
    if seen is not None:
        return _absorb(draft, entry, phase, seen, reachable=reachable)
    if entry.uid and reachable:
        return _vanished(draft, entry)
    return None


def _look_at_closed(draft: Draft, entry: InstanceEntry, seen: Observation) -> None:
    """An instance that is to be gone: remember its object and how it ended."""
    phase = entry.phase
    # of one that nobody has seen running: what it used counts all the same
    entry = replace(entry, started_at=entry.started_at or seen.started_at)
    if seen.state in ENDED:
        if seen.lingers:  # its place is given back while others go on
            draft.mark_for_deletion(seen)
        if entry.state == "terminating" and isinstance(phase, FinalPhase):
            end = replace(phase.end, exit_code=seen.exit_code, signal=seen.signal)
            at = seen.finished_at or draft.now
            ended = replace(entry, uid=seen.uid, phase=FinalPhase(end=end), finished_at=at)
            grace, _ = termination(draft, seen)
            killed = killed_after_grace(entry, seen, grace_seconds=grace, now=draft.now)
            if killed and killed not in entry.message:
                ended = replace(ended, message="; ".join(filter(None, (entry.message, killed))))
                _record_kill(draft, ended, killed)
            draft.put(ended)
        return
    draft.mark_for_deletion(seen)
    draft.put(replace(entry, uid=seen.uid, phase=replace(phase, deadline_at=None)))


def _absorb(
    draft: Draft, entry: InstanceEntry, phase: ActivePhase, seen: Observation, *, reachable: bool
) -> Failure | None:
    """Write what the object of the current attempt does into its entry."""
    if entry.was_running and seen.state == "pending":
        return None  # an old message: nothing goes back to pending
    if seen.state == "succeeded":
        return _succeeded(draft, entry, seen)
    if seen.state == "failed":
        return _failed(draft, entry, seen)
    if seen.state == "unknown":
        return _unknown(draft, entry, phase, seen, reachable=reachable)
    held = seen.held and seen.state == "pending"
    running = seen.state == "running"
    started_at = seen.started_at or entry.started_at
    changed = draft.put(
        replace(
            entry,
            uid=seen.uid,
            node=seen.node or entry.node,
            address=seen.address or entry.address,
            started_at=started_at or draft.now if running else started_at,
            state=seen.state,
            reason=reasons.WAITING_FOR_DEPENDENCY if held else seen.reason,
            message=seen.message,
            phase=ActivePhase(
                desired_since=phase.desired_since,
                released=phase.released,
                readiness=_readiness(draft, seen) if running else NOT_READY,
                announced_node_reasons=phase.announced_node_reasons,
                peer_wait=phase.peer_wait,
                preflight_told=phase.preflight_told,
            ),
            was_running=entry.was_running or running,
            last_try=entry.last_try and not running,
        )
    )
    where = f" on {seen.node}" if seen.node else ""
    if running and not entry.was_running:
        draft.record_event(reasons.INSTANCE_RUNNING, f"running{where}", of=changed)
    elif entry.state == "unknown":
        draft.record_event(
            reasons.INSTANCE_KNOWN_AGAIN, f"is heard from again: {seen.state}{where}", of=changed
        )
    elif seen.reason == reasons.NEVER_FITS:
        _warn_of_size(draft, changed)
    elif seen.reason == reasons.CHECKING_ENVIRONMENT and seen.message not in ("", entry.message):
        draft.record_event(seen.reason, seen.message, of=changed)
    if seen.reason == reasons.HELPER_DIED and seen.message != entry.message:
        draft.record_event(seen.reason, seen.message, of=changed, level="warning")
    return None


def _warn_of_size(draft: Draft, entry: InstanceEntry) -> None:
    """Say once for a role that no machine could ever take its instances, and again in other words only."""
    role = draft.roles[entry.role]
    if (role.reason, role.message) != (reasons.NEVER_FITS, entry.message):
        draft.set_role(entry.role, reason=reasons.NEVER_FITS, message=entry.message)
        draft.record_event(reasons.NEVER_FITS, entry.message, of=entry, level="warning")


def _readiness(draft: Draft, seen: Observation) -> Readiness:
    """Return what others may rely on; its address only once it listens, where others wait for that."""
    live = seen.address_live and _listens(draft, seen)
    return Readiness(live, seen.port_open, seen.ready)


def _listens(draft: Draft, seen: Observation) -> bool:
    """Return whether an instance listens, where others wait for that: before, they would be refused."""
    awaited = any(
        each.role == seen.role and each.status == "PortOpen"
        for role in draft.spec.roles
        for each in role.depends_on
    )
    return seen.port_open or not awaited


def _with_end(entry: InstanceEntry, seen: Observation, *, at: float) -> InstanceEntry:
    """Return the entry with what an object says that has ended, at `at`."""
    return replace(
        entry,
        uid=seen.uid,
        node=seen.node or entry.node,
        address=seen.address or entry.address,
        started_at=seen.started_at or entry.started_at or at,
        finished_at=at,
    )


def _succeeded(draft: Draft, entry: InstanceEntry, seen: Observation) -> Failure | None:
    at = seen.finished_at or draft.now
    if draft.spec.role(entry.role).restart_policy == "Always":
        draft.put(_with_end(entry, seen, at=at))
        return _failure(
            draft,
            entry,
            at=at,
            reason=reasons.COMPLETED,
            message=seen.message,
            failure_class="user",
            node=seen.node,
            exit_code=0,
        )
    delete_initializer(draft, entry)
    if seen.lingers:
        draft.mark_for_deletion(seen)
    changed = draft.put(
        replace(
            _with_end(entry, seen, at=at),
            phase=FinalPhase(end=AttemptEnd(exit_code=seen.exit_code or 0)),
            state="succeeded",
            reason=reasons.COMPLETED,
            message="; ".join(filter(None, (seen.message, seen.outlived_by))),
            host=OWN_INSTANCE,
        )
    )
    told = seen.message or f"ended with exit code {changed.end.exit_code}"
    draft.record_event(reasons.INSTANCE_SUCCEEDED, told, of=changed)
    if seen.outlived_by:
        draft.record_event(reasons.PROCESSES_LEFT, seen.outlived_by, of=changed, level="warning")
    if seen.output is not None and not seen.output.bytes:
        draft.record_event(
            reasons.OUTPUT_EMPTY,
            "it left nothing in TRAINING_OUTPUT_DIR, so the output of the job is empty: does rank 0"
            " write there, and is it this instance?",
            of=changed,
            level="warning",
        )
    return None


def _failed(draft: Draft, entry: InstanceEntry, seen: Observation) -> Failure:
    at = seen.finished_at or draft.now
    known = draft.known_reasons.get(seen.reason)
    failure_class = classify(
        known=known,
        disrupted=seen.disrupted,
        signal=seen.signal,
        exit_code=seen.exit_code,
    )
    if entry.state == "terminating" and not seen.disrupted and known is None:
        # somebody else deleted it; how it took the signal says nothing about the script
        failure_class = "infrastructure"
    diagnosed = draft.diagnoses.get(entry.attempt_key)
    said_by_runtime = seen.disrupted or known is not None or entry.state == "terminating"
    if diagnosed is not None and not said_by_runtime:
        failure_class = class_of(diagnosed, otherwise=failure_class)
    around = observed_hardware(seen.environment) or entry.observed_hardware
    draft.put(replace(_with_end(entry, seen, at=at), observed_hardware=around))
    grace, _ = termination(draft, seen)
    killed = ""
    if seen.disrupted:
        killed = killed_after_grace(entry, seen, grace_seconds=grace, now=draft.now)
    message = (
        seen.message if killed in seen.message else "; ".join(filter(None, (seen.message, killed)))
    )
    failure = _failure(
        draft,
        entry,
        at=at,
        reason=seen.reason,
        message=_with_limit(draft, entry, seen.reason, message),
        failure_class=failure_class,
        node=seen.node,
        exit_code=seen.exit_code,
    )
    return replace(
        failure,
        signal=seen.signal,
        said_by_runtime=said_by_runtime,
        environment=environment_state(read_records(seen.environment), at=at),
        step=None if seen.progress is None else seen.progress.step,
        diagnosed=diagnosed,
    )


def _with_limit(draft: Draft, entry: InstanceEntry, reason: str, message: str) -> str:
    """Return the words of an end with the limit that was used up, where the job names it."""
    limit = memory_limit_of(draft.spec.role(entry.role), entry)
    if reason != reasons.OUT_OF_MEMORY or limit is None:
        return message
    return f"{message} (limit {bytes_text(limit)}, limits.memory of role {entry.role})"


def _unknown(
    draft: Draft, entry: InstanceEntry, phase: ActivePhase, seen: Observation, *, reachable: bool
) -> Failure | None:
    until = phase.deadline_at if entry.state == "unknown" else None
    if reachable and until is None:
        until = draft.now + draft.spec.unknown_seconds
    node = seen.node or entry.node
    changed = draft.put(
        replace(
            entry,
            uid=seen.uid,
            node=node,
            address=seen.address or entry.address,
            started_at=seen.started_at or entry.started_at,
            state="unknown",
            reason=seen.reason or "Unknown",
            message=seen.message or f"nothing is heard from node {node or '(unknown)'}",
            phase=replace(phase, readiness=NOT_READY, deadline_at=until),
        )
    )
    if entry.state != "unknown":
        draft.record_event(reasons.INSTANCE_UNKNOWN, changed.message, of=changed, level="warning")
    if not reachable or until is None:
        return None  # it may be known again for long: see `skip_outage`
    if draft.now < until:
        draft.wake(until)
        return None
    silent_since, limit = changed.last_transition_at, draft.spec.unknown_seconds
    passed = draft.now - silent_since
    more = f" (of {passed:.0f} s that passed)" if passed - limit >= 1 else ""
    failure = _failure(
        draft,
        entry,
        at=draft.now,
        reason=reasons.UNKNOWN_TOO_LONG,
        message=f"unknown for {limit:g} s{more} on node {node or '(unknown)'}",
        failure_class="infrastructure",
        node=node,
    )
    return replace(failure, silent_since=silent_since)


def _vanished(draft: Draft, entry: InstanceEntry) -> Failure:
    return _failure(
        draft,
        entry,
        at=draft.now,
        reason=reasons.VANISHED,
        message="its object disappeared without a trace (deleted by somebody else?)",
        failure_class="infrastructure",
        node=entry.node,
    )


def _failure(
    draft: Draft,
    entry: InstanceEntry,
    *,
    at: float,
    reason: str,
    message: str,
    failure_class: FailureClass,
    node: str,
    exit_code: int | None = None,
) -> Failure:
    known = draft.known_reasons.get(reason)
    taken = known is not None and known.cause == NODE_LOST
    if taken and draft.spec.role(entry.role).is_on_spot(entry.index):
        failure_class = (
            "preemption"  # such a node goes without a word, and that is what it is cheap for
        )
    return Failure(
        key=entry.key,
        attempt_id=entry.attempt_id,
        at=at,
        reason=reason,
        known=known,
        message=message,
        exit_code=exit_code,
        failure_class=failure_class,
        node=node,
    )

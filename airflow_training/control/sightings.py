"""Takes the observations into the ledger: what each attempt does now, and which objects are not ours.

Drops what belongs to older attempts, epochs and generations. Reports failures; judges none.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.diagnosed import class_of
from airflow_training.control.draft import Draft
from airflow_training.control.environment import environment_state, read_records
from airflow_training.control.failures import (
    REASON_CLASSES,
    Failure,
    classify,
    ended_by_term,
)
from airflow_training.control.model import InstanceEntry, Observation, Observations
from airflow_training.control.readiness import had
from airflow_training.control.turnover import AT_REST, ENDED, let_go

__all__ = ["take_in"]

_said = attrgetter(
    "state", "reason", "message", "address_live", "port_open", "ready", "node", "address"
)


def take_in(draft: Draft, observations: Observations) -> list[Failure]:
    """Update the draft from a snapshot; return new failures, the earliest first."""
    draft.objects = {each.uid: each for each in observations.instances}
    known = 0
    attention: list[InstanceEntry] = []
    objects = draft.objects
    for entry in draft.instances.values():
        if entry.uid and (seen := objects.get(entry.uid)) is not None:
            known += 1
            if entry.state == "running" and _said(seen) == _said(entry):
                continue
            attention.append(entry)
        elif entry.uid or entry.wanted or entry.deadline_at is not None:
            attention.append(entry)
    if known != len(objects):
        _sort_out_unknown(draft)
    failures = []
    for entry in attention:
        failure = _look(draft, entry, reachable=observations.reachable)
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


def _sort_out_unknown(draft: Draft) -> None:
    """Find objects that no entry knows yet: the current attempt's first sighting, or not ours."""
    for seen in draft.objects.values():
        key = (seen.role, seen.index)
        entry = draft.instances.get(key)
        if entry is not None and entry.uid == seen.uid:
            continue
        rival = draft.current.get(key)
        if entry is not None and entry.stays == seen.uid:
            draft.occupy(seen)
        elif entry is None or not _is_expected(entry, seen):
            draft.doom(seen)
            draft.occupy(seen)
        elif rival is None or (seen.generation, rival.uid) > (rival.generation, seen.uid):
            draft.current[key] = seen
            if rival is not None:
                draft.doom(rival)
        else:
            draft.doom(seen)


def _is_expected(entry: InstanceEntry, seen: Observation) -> bool:
    """Return whether an object is the one that an entry waits for."""
    expected = not entry.uid and (entry.wanted or entry.deadline_at is not None)
    same_attempt = (seen.epoch, seen.job_attempt, seen.attempt) == (
        entry.epoch,
        entry.job_attempt,
        entry.attempt,
    )
    # 0: made without a lease; anything else below ours comes from a holder that lost it
    same_holder = seen.generation == 0 or seen.generation >= entry.generation
    return expected and same_attempt and same_holder and not entry.retired


def _look(draft: Draft, entry: InstanceEntry, *, reachable: bool) -> Failure | None:
    key = (entry.role, entry.index)
    seen = draft.objects.get(entry.uid) if entry.uid else draft.current.get(key)
    if seen is not None:
        draft.current[key] = seen
    if not entry.wanted:
        if seen is not None:
            _look_at_closed(draft, entry, seen)
        return None
    if seen is not None:
        return _absorb(draft, entry, seen)
    if entry.uid and reachable:
        return _vanished(draft, entry)
    return None


def _look_at_closed(draft: Draft, entry: InstanceEntry, seen: Observation) -> None:
    """An instance that is to be gone: remember its object and how it ended."""
    if seen.state in ENDED:
        if entry.state == "terminating":
            draft.change(
                entry,
                uid=seen.uid,
                deadline_at=None,
                exit_code=seen.exit_code,
                signal=seen.signal,
                finished_at=seen.finished_at or draft.now,
            )
        return
    draft.doom(seen)
    draft.change(entry, uid=seen.uid, deadline_at=None)


def _absorb(draft: Draft, entry: InstanceEntry, seen: Observation) -> Failure | None:
    """Write what the object of the current attempt does into its entry."""
    if entry.was_running and seen.state == "pending":
        return None  # an old message: nothing goes back to pending
    facts: dict[str, Any] = {
        "uid": seen.uid,
        "node": seen.node or entry.node,
        "address": seen.address or entry.address,
        "started_at": seen.started_at or entry.started_at,
    }
    if seen.state in ENDED:
        facts["finished_at"] = seen.finished_at or draft.now
        facts["started_at"] = facts["started_at"] or facts["finished_at"]
    if seen.state == "succeeded":
        return _succeeded(draft, entry, seen, facts)
    if seen.state == "failed":
        return _failed(draft, entry, seen, facts)
    if seen.state == "unknown":
        return _unknown(draft, entry, seen, facts)
    held = seen.held and seen.state == "pending"
    running = seen.state == "running"
    if running:
        facts["started_at"] = facts["started_at"] or draft.now
    changed = draft.change(
        entry,
        **facts,
        state=seen.state,
        reason=reasons.WAITING_FOR_DEPENDENCY if held else seen.reason,
        message=seen.message,
        address_live=seen.address_live and running,
        port_open=seen.port_open and running,
        ready=seen.ready and running,
        was_running=entry.was_running or running,
        deadline_at=None,
    )
    if running and not entry.was_running:
        where = f" on {seen.node}" if seen.node else ""
        draft.tell(reasons.INSTANCE_RUNNING, f"running{where}", of=changed)
    return None


def _succeeded(
    draft: Draft, entry: InstanceEntry, seen: Observation, facts: dict[str, Any]
) -> Failure | None:
    if draft.spec.role(entry.role).restart_policy == "Always":
        draft.change(entry, **facts)
        return _failure(
            entry,
            at=facts["finished_at"],
            reason=reasons.COMPLETED,
            message=seen.message,
            exit_code=0,
            failure_class="user",
            node=seen.node,
        )
    let_go(draft, entry)
    changed = draft.change(
        entry,
        **facts,
        **AT_REST,
        state="succeeded",
        reason=reasons.COMPLETED,
        message=seen.message,
        exit_code=0 if seen.exit_code is None else seen.exit_code,
        final=True,
    )
    draft.tell(reasons.INSTANCE_SUCCEEDED, "ended with exit code 0", of=changed)
    return None


def _failed(
    draft: Draft, entry: InstanceEntry, seen: Observation, facts: dict[str, Any]
) -> Failure:
    failure_class = classify(
        reason=seen.reason,
        disrupted=seen.disrupted,
        signal=seen.signal,
        exit_code=seen.exit_code,
    )
    if entry.state == "terminating" and not seen.disrupted and seen.reason not in REASON_CLASSES:
        # somebody else deleted it; how it took the signal says nothing about the script
        failure_class = "infrastructure"
    diagnosed = draft.diagnoses.get((entry.role, entry.index, entry.attempt))
    said_by_runtime = (
        seen.disrupted or seen.reason in REASON_CLASSES or entry.state == "terminating"
    )
    if diagnosed is not None and not said_by_runtime:
        failure_class = class_of(diagnosed, otherwise=failure_class)
    draft.change(entry, **facts, had=had(seen.environment) or entry.had)
    return _failure(
        entry,
        at=facts["finished_at"],
        reason=seen.reason,
        message=seen.message,
        exit_code=seen.exit_code,
        signal=seen.signal,
        failure_class=failure_class,
        node=seen.node,
        environment=environment_state(read_records(seen.environment), at=facts["finished_at"]),
        diagnosed=diagnosed,
    )


def _unknown(
    draft: Draft, entry: InstanceEntry, seen: Observation, facts: dict[str, Any]
) -> Failure | None:
    until = draft.now + draft.spec.unknown_seconds
    if entry.state == "unknown" and entry.deadline_at is not None:
        until = entry.deadline_at
    node = seen.node or entry.node
    changed = draft.change(
        entry,
        **facts,
        state="unknown",
        reason=seen.reason or "Unknown",
        message=seen.message or f"nothing is heard from node {node or '(unknown)'}",
        address_live=False,
        port_open=False,
        ready=False,
        deadline_at=until,
    )
    if entry.state != "unknown":
        draft.tell(reasons.INSTANCE_UNKNOWN, changed.message, of=changed, level="warning")
    if draft.now < until:
        draft.wake(until)
        return None
    return _failure(
        entry,
        at=draft.now,
        reason=reasons.UNKNOWN_TOO_LONG,
        message=f"unknown for {draft.spec.unknown_seconds:g} s on node {node or '(unknown)'}",
        failure_class="infrastructure",
        node=node,
    )


def _vanished(draft: Draft, entry: InstanceEntry) -> Failure:
    return _failure(
        entry,
        at=draft.now,
        reason=reasons.VANISHED,
        message="its object disappeared without a trace (deleted by somebody else?)",
        failure_class="infrastructure",
        node=entry.node,
    )


def _failure(entry: InstanceEntry, **facts: Any) -> Failure:
    return Failure(role=entry.role, index=entry.index, attempt=entry.attempt, **facts)

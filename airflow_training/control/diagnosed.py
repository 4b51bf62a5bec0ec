"""What the diagnosis of a failure changes: its class, and whether another try is worth it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from airflow_training.control import reasons
from airflow_training.control.causes import DiagnosedCause
from airflow_training.control.draft import Draft
from airflow_training.control.failures import CANNOT_START_CODES, is_listed, restarts_a_class
from airflow_training.control.lost_peers import LIKELY, explained_by, follows, lost_peers
from airflow_training.control.memory import grow_memory
from airflow_training.control.model import MOVED, AttemptEnd, InstanceEntry, RestartRecord
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.root_cause import cause_of_diagnosis, message_of
from airflow_training.control.transitions import fail_for_good
from airflow_training.documents.resolved import FailureClass
from airflow_training.documents.text import headline

__all__ = [
    "HAPPENED_AGAIN",
    "NEEDS_CHANGE",
    "SURE",
    "NoOtherTry",
    "apply_late_diagnoses",
    "class_of",
    "excuse_peers",
    "fingerprint",
    "is_revocable",
    "origin_of",
    "record_consequence",
    "record_diagnosis",
    "why_not_again",
]

CLASSES: Mapping[str, FailureClass] = {
    "user-error": "user",
    "configuration": "user",
    "data": "user",
    "infrastructure": "infrastructure",
    "preemption": "preemption",
    "resource": "resource",
}
SURE = 0.8
"""Confidence from which on a diagnosis stops restarts by itself."""
NEEDS_CHANGE = "it needs a change first"
HAPPENED_AGAIN = "it happened again after one more try"
_NOT_FOUND = frozenset({"container-start-error", "file-not-found", "permission-denied"})
"""Causes that say why a shell could not run a command."""
_AT_IMPORT = re.compile(
    r"\b(?:ModuleNotFound|Import|Syntax|Indentation|Tab)Error: |can't open file "
)
"""Of a script that Python does not find, cannot read, or cannot import what it needs for."""
_DRAWN = re.compile(
    r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|\b(?=[a-f]*\d)[0-9a-f]{12,}\b|\btmp[a-z0-9_]{8}\b"
)
"""Addresses, UUIDs, digests and names of temporary files: each attempt has others."""
_NUMBER = re.compile(r"\d+")
_LONGEST = 200
_IN_LINE = re.compile(r"line (\d+): (.*)", re.DOTALL)
_LINES_APART = 3
_NOTICED_WITHIN_SECONDS = 600.0
"""Of the failure of another: collective operations and heartbeats wait so long for a lost peer."""


@dataclass(frozen=True, slots=True)
class NoOtherTry:
    """Why a failure gets no other try."""

    reason: str
    message: str
    """With the words that prove it."""
    limit: str
    """The same beside a headline, which has these words."""


def class_of(told: InstanceDiagnosis, *, otherwise: FailureClass) -> FailureClass:
    """Return the class that a failure is charged to, where only an exit code speaks against it.

    What a log calls a preemption needs the runtime to say so too: those restarts have no limit.
    """
    if told.cause.id == "unknown" or told.cause.confidence < LIKELY:
        return otherwise
    found = CLASSES[told.cause.category]
    return otherwise if found == "preemption" else found


def fingerprint(told: InstanceDiagnosis) -> str:
    """Return a text that is equal for the same error at the same step.

    Where no step is known it has to be the same line of the log, word by word but for what is drawn anew.
    """
    evidence = _DRAWN.sub("#", told.cause.evidence)
    if told.step is None:
        return f"line {told.cause.line}: {evidence[:_LONGEST]}"
    return f"step {told.step}: {_NUMBER.sub('#', evidence)[:_LONGEST]}"


def _is_same_place(one: str, other: str) -> bool:
    """Return whether two fingerprints tell of the same error at the same step, or in about the same line.

    Ranks that print into one log are a few lines apart each time.
    """
    if one == other:
        return True
    ours, theirs = _IN_LINE.fullmatch(one), _IN_LINE.fullmatch(other)
    if ours is None or theirs is None or ours[2] != theirs[2]:
        return False
    return abs(int(ours[1]) - int(theirs[1])) <= _LINES_APART


def why_not_again(told: InstanceDiagnosis, before: Sequence[RestartRecord]) -> NoOtherTry | None:
    """Return why another try cannot help, None where it may. `before`: the restarts of this epoch."""
    cause = told.cause
    name, evidence = cause.id, headline(cause.evidence, most=_LONGEST)
    if _never_started(told):
        return NoOtherTry(reasons.NOT_RETRYABLE, evidence, NEEDS_CHANGE)
    sure = cause.confidence >= SURE
    if sure and cause.retryable == "no":
        words = f"{name} needs a change first: {evidence}"
        return NoOtherTry(reasons.NOT_RETRYABLE, words, NEEDS_CHANGE)
    mine = [
        record
        for record in before
        if record.key == told.key and record.attempt != told.attempt and record.cause == name
    ]
    if sure and mine and cause.retryable == "once":
        words = f"{name} happened again after one more try: {evidence}"
        return NoOtherTry(reasons.NOT_RETRYABLE, words, HAPPENED_AGAIN)
    same = fingerprint(told)
    if _comes_again(cause) and any(_is_same_place(each.fingerprint, same) for each in mine):
        limit = "the same error for the second time"
        if told.step is not None:
            limit = f"the same error at step {told.step} for the second time"
        return NoOtherTry(reasons.SAME_ERROR_AGAIN, f"{limit}: {evidence}", limit)
    return None


def _comes_again(cause: DiagnosedCause) -> bool:
    """Return whether the same error at the same step shows that another try changes nothing."""
    if cause.id == "unknown":
        return False
    needs_change = cause.retryable == "no" and cause.confidence >= LIKELY
    return needs_change or CLASSES.get(cause.category) == "user"


def _never_started(told: InstanceDiagnosis) -> bool:
    """Return whether a command could not start, or failed at its imports: it will again."""
    if told.step or told.cause.retryable != "no":
        return False
    if told.exit_code in CANNOT_START_CODES and told.cause.id in _NOT_FOUND:
        return True
    return _AT_IMPORT.search(told.cause.evidence) is not None


def is_revocable(draft: Draft, entry: InstanceEntry) -> bool:
    """Return whether an attempt belongs to a restart whose failure is still being diagnosed."""
    return bool(draft.undiagnosed) and any(
        record.scope not in ("Instance", "Role")
        or (record.role == entry.role and (record.scope == "Role" or record.index == entry.index))
        for record in draft.job.restarts
        if record.attempt_key in draft.undiagnosed
    )


def origin_of(
    told: InstanceDiagnosis,
    before: Sequence[RestartRecord],
    *,
    started_at: float | None,
    said_by_runtime: bool,
) -> RestartRecord | None:
    """Return the restart that a failure of one instance alone follows from; None: it stands for itself.

    Another instance had failed while this one's attempt ran, and then its program ended itself, over
    its peers as its log says. Each attempt is free at most once, as the
    next one begins later. `before`: the restarts of this epoch. `started_at`: when the attempt ran.
    `said_by_runtime`: the reason of its end says more than its exit code.
    """
    if started_at is None or told.finished_at is None or said_by_runtime or not lost_peers(told):
        return None
    for record in reversed(before):
        failed = record.counted or record.failure_class == "preemption" or record.rule == MOVED
        other = record.key != told.key
        noticed = started_at <= record.at >= told.finished_at - _NOTICED_WITHIN_SECONDS
        if failed and other and noticed:
            return record
    return None


def record_consequence(
    draft: Draft, entry: InstanceEntry, what: str, origin: RestartRecord
) -> None:
    """Add to the run's story that a failure costs nothing."""
    first = str(origin.key)
    why = f"after {first} had failed, which was charged; this is not"
    if origin.lost_node and origin.lost_node == entry.node:
        why = f"node {origin.lost_node} is lost, which was charged once, to {first}; this is not"
    draft.record_event(reasons.FAILURE_IS_CONSEQUENCE, f"{what}: {why}", of=entry)


def excuse_peers(draft: Draft, first: RestartRecord) -> None:
    """Take back what was charged to instances that only lost the one that has failed `first`."""
    excused = [each for each in draft.job.restarts if follows(each, first)]
    if not excused:
        return
    left = tuple(each for each in draft.job.restarts if each not in excused)
    draft.job = replace(draft.job, restarts=left)
    for each in excused:
        _credit(draft, each, first)


def _credit(draft: Draft, record: RestartRecord, first: RestartRecord) -> None:
    entry = draft.instances[record.key]
    changed = draft.put(replace(entry, restarts=max(0, entry.restarts - 1)))
    draft.record_event(
        reasons.FAILURE_IS_CONSEQUENCE,
        f"attempt {record.attempt} only lost {first.key}, which had failed first:"
        " its charge is taken back",
        of=changed,
    )


def charge_first(
    draft: Draft, record: RestartRecord, told: InstanceDiagnosis
) -> RestartRecord | None:
    """Return the line that charges a restart to whom a late diagnosis names; None: it names nobody else."""
    first = told.origin
    if first is None or not lost_peers(told) or record.scope == "Instance" or not record.counted:
        return None
    entry = draft.instances.get(first.key)
    if entry is None or (entry.epoch, entry.attempt) != (first.epoch, first.attempt + 1):
        return None
    if record.scope == "Role" and first.role != record.role:
        return None  # it restarts by itself, as it does where this is known at once
    if any(each.attempt_key == first.attempt_key for each in draft.job.restarts):
        return None  # it has been charged already
    moved = replace(
        record,
        key=first.key,
        attempt=first.attempt,
        failure_class=class_of(first, otherwise="user"),
        said_by_runtime=False,
        cause=first.cause.id,
        fingerprint=fingerprint(first),
        explained_by="itself",
    )
    _credit(draft, record, moved)
    draft.put(replace(entry, restarts=entry.restarts + 1))
    return moved


def record_diagnosis(draft: Draft, told: InstanceDiagnosis) -> None:
    """Add the diagnosis to the run's story."""
    entry = draft.instances[told.key]
    draft.record_event(
        reasons.DIAGNOSED,
        f"attempt {told.attempt}: {told.cause.id}: {headline(told.cause.evidence, most=_LONGEST)}",
        of=entry,
        level="warning",
        cause=told.cause.to_document(),
    )


def apply_late_diagnoses(draft: Draft) -> None:
    """Take in diagnoses that came after their restart was decided.

    A restart that has not begun yet is taken back where it cannot help.
    """
    for told in tuple(draft.diagnoses.values()):
        place = next(
            (
                number
                for number, record in enumerate(draft.job.restarts)
                if record.attempt_key == told.attempt_key and not record.cause
            ),
            None,
        )
        if place is None:
            continue
        records = list(draft.job.restarts)
        record = records[place]
        said_by_runtime = told.reason in draft.known_reasons
        failure_class = record.failure_class
        if not record.said_by_runtime:
            failure_class = class_of(told, otherwise=failure_class)
        records[place] = record = replace(
            record,
            failure_class=failure_class,
            cause=told.cause.id,
            fingerprint=fingerprint(told),
            explained_by=record.explained_by if said_by_runtime else explained_by(told),
        )
        record_diagnosis(draft, told)
        wanted = _user_wants_it(draft, record, told)
        moved = charge_first(draft, record, told)
        if moved is not None:
            records[place] = record = moved
            told = told.origin or told
            draft.diagnoses[told.attempt_key] = told
        entry = draft.instances[told.key]
        origin = _origin_known_late(
            told, record, records[:place], said_by_runtime=said_by_runtime
        ) or next((each for each in records[place + 1 :] if follows(record, each)), None)
        if origin is not None:
            record_consequence(draft, entry, f"attempt {told.attempt}", origin)
            del records[place]
            draft.put(replace(entry, restarts=max(0, entry.restarts - 1)))
            draft.job = replace(draft.job, restarts=tuple(records))
            continue
        known = draft.known_reasons.get(told.reason)
        says_it_itself = known is not None and known.another_try
        stop = None if says_it_itself else why_not_again(told, records)
        if (
            stop is not None
            and _still_waits(draft, entry, told)
            and not grow_memory(draft, entry, after=told.attempt, reason=told.reason, told=told)
            and not wanted
        ):
            del records[place]
            _refund_restart(draft, entry, told, record, stop)
        draft.job = replace(draft.job, restarts=tuple(records))
        excuse_peers(draft, record)


def _user_wants_it(draft: Draft, record: RestartRecord, told: InstanceDiagnosis) -> bool:
    """Return whether the user's own word is why something was restarted: no log speaks against that."""
    if is_listed(draft.spec.restart.exit_codes, draft.spec.role(told.role), told.exit_code):
        return True
    rules = draft.spec.failure_policy.rules
    return any(rule.name == record.rule and not restarts_a_class(rule) for rule in rules)


def _origin_known_late(
    told: InstanceDiagnosis,
    record: RestartRecord,
    before: Sequence[RestartRecord],
    *,
    said_by_runtime: bool,
) -> RestartRecord | None:
    if record.scope != "Instance" or not record.counted:
        return None
    same_epoch = [each for each in before if each.epoch == record.epoch]
    return origin_of(
        told, same_epoch, started_at=record.started_at, said_by_runtime=said_by_runtime
    )


def _still_waits(draft: Draft, entry: InstanceEntry, told: InstanceDiagnosis) -> bool:
    """Return whether nothing of the attempt after the failed one was created yet, and nobody asked for it."""
    return (
        entry.attempt == told.attempt + 1
        and entry.epoch == told.epoch == draft.job.epoch
        and not (entry.desired or entry.final or entry.uid)
    )


def _refund_restart(
    draft: Draft,
    entry: InstanceEntry,
    told: InstanceDiagnosis,
    record: RestartRecord,
    stop: NoOtherTry,
) -> None:
    changed = fail_for_good(
        draft,
        replace(
            entry,
            attempt_id=replace(
                entry.attempt_id, job_attempt=told.job_attempt, attempt=told.attempt
            ),
            restarts=max(0, entry.restarts - record.counted),
            uid=entry.host.uid,
            reason=told.reason or reasons.INSTANCE_FAILED,
            message=stop.message,
            finished_at=told.finished_at,
        ),
        AttemptEnd(told.exit_code, told.signal, record.failure_class),
    )
    cause = cause_of_diagnosis(told, draft.known_reasons)
    draft.gave_up[told.role] = (stop.reason, message_of(cause, stop.limit), stop.limit)
    draft.record_event(
        reasons.INSTANCE_FAILED,
        f"{stop.message}; its restart had not begun and is taken back",
        of=changed,
        rule="diagnosis",
        level="error",
        failure_class=record.failure_class,
    )

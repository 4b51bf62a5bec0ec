"""What the diagnosis of a failure changes: its class, and whether another try is worth it. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import Diagnosed, InstanceEntry, RestartRecord
from airflow_training.control.turnover import fail_for_good
from airflow_training.spec.resolved import FailureClass

__all__ = ["SURE", "class_of", "fingerprint", "learn", "tell", "why_not_again"]

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
_LIKELY = 0.5
"""Confidence from which on it says more than an exit code."""
_VARIES = re.compile(r"0x[0-9a-fA-F]+|\d+")
_LONGEST = 200


def class_of(told: Diagnosed, *, otherwise: FailureClass) -> FailureClass:
    """Return the class that a failure is charged to, where only an exit code speaks against it.

    What a log calls a preemption needs the runtime to say so too: those restarts have no limit.
    """
    if told.cause["id"] == "unknown" or told.cause["confidence"] < _LIKELY:
        return otherwise
    found = CLASSES[told.cause["category"]]
    return otherwise if found == "preemption" else found


def fingerprint(told: Diagnosed) -> str:
    """Return a text that is equal for the same error at the same step.

    Where no step is known it has to be the same line of the log, word by word.
    """
    evidence = str(told.cause["evidence"])[:_LONGEST]
    if told.step is None:
        return f"line {told.cause['line']}: {evidence}"
    return f"step {told.step}: {_VARIES.sub('#', evidence)}"


def why_not_again(told: Diagnosed, before: Sequence[RestartRecord]) -> tuple[str, str] | None:
    """Return reason and words why another try cannot help, None where it may.

    `before`: the restarts of this epoch.
    """
    cause = told.cause
    name, evidence = cause["id"], str(cause["evidence"])[:_LONGEST]
    sure = cause["confidence"] >= SURE
    if sure and cause["retryable"] == "no":
        return reasons.NOT_RETRYABLE, f"{name} needs a change first: {evidence}"
    mine = [
        record
        for record in before
        if (record.role, record.index) == (told.role, told.index)
        and record.attempt != told.attempt
        and record.cause == name
    ]
    if sure and mine and cause["retryable"] == "once":
        return reasons.NOT_RETRYABLE, f"{name} happened again after one more try: {evidence}"
    same = fingerprint(told)
    if cause["category"] == "user-error" and any(each.fingerprint == same for each in mine):
        where = "" if told.step is None else f" at step {told.step}"
        return reasons.SAME_ERROR_AGAIN, f"the same error{where} for the second time: {evidence}"
    return None


def tell(draft: Draft, told: Diagnosed) -> None:
    """Add the diagnosis to the run's story."""
    entry = draft.instances[told.role, told.index]
    draft.tell(
        reasons.DIAGNOSED,
        f"attempt {told.attempt}: {told.cause['id']}: {str(told.cause['evidence'])[:_LONGEST]}",
        of=entry,
        level="warning",
        cause=dict(told.cause),
    )


def learn(draft: Draft) -> None:
    """Take in diagnoses that came after their restart was decided.

    A restart that has not begun yet is taken back where it cannot help.
    """
    for told in draft.diagnoses.values():
        place = next(
            (
                number
                for number, record in enumerate(draft.job.restarts)
                if (record.role, record.index, record.attempt)
                == (told.role, told.index, told.attempt)
                and not record.cause
            ),
            None,
        )
        if place is None:
            continue
        records = list(draft.job.restarts)
        record = records[place]
        records[place] = replace(record, cause=told.cause["id"], fingerprint=fingerprint(told))
        tell(draft, told)
        entry = draft.instances[told.role, told.index]
        stop = why_not_again(told, records)
        if stop is not None and _still_waits(draft, entry, told):
            del records[place]
            _take_back(draft, entry, told, record, stop)
        draft.set_job(restarts=tuple(records))


def _still_waits(draft: Draft, entry: InstanceEntry, told: Diagnosed) -> bool:
    """Return whether nothing of the attempt after the failed one was created yet."""
    return (
        entry.attempt == told.attempt + 1
        and entry.epoch == draft.job.epoch
        and not (entry.wanted or entry.final or entry.uid)
    )


def _take_back(
    draft: Draft,
    entry: InstanceEntry,
    told: Diagnosed,
    record: RestartRecord,
    stop: tuple[str, str],
) -> None:
    reason, message = stop
    changed = fail_for_good(
        draft,
        entry,
        attempt=told.attempt,
        job_attempt=told.job_attempt,
        restarts=max(0, entry.restarts - record.counted),
        reason=told.reason or reasons.INSTANCE_FAILED,
        message=message,
        exit_code=told.exit_code,
        signal=told.signal,
        failure_class=class_of(told, otherwise=record.failure_class),
        finished_at=told.finished_at,
    )
    draft.gave_up[told.role] = (reason, f"{told.role}-{told.index}: {message}")
    draft.tell(
        reasons.INSTANCE_FAILED,
        message,
        of=changed,
        rule="diagnosis",
        level="error",
        failure_class=changed.failure_class,
    )

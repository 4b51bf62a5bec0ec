"""Which failure explains the end of a job, as far as exit reasons tell; logs may know better."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.attempts import AttemptKey
from airflow_training.control.causes import DiagnosedCause, RootCause
from airflow_training.control.failures import Failure, ended_by_term
from airflow_training.control.lost_peers import lost_peers
from airflow_training.control.model import (
    Decision,
    Event,
    InstanceEntry,
    JobEntry,
    Ledger,
    RoleEntry,
)
from airflow_training.control.observations import InstanceDiagnosis
from airflow_training.control.reason_facts import ENDED_BY_PLATFORM, OWN_REASONS, Reasons
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.text import headline, without_name

__all__ = [
    "NEVER_FITS_CAUSE",
    "cause_id",
    "cause_lines",
    "cause_of_diagnosis",
    "cause_of_failure",
    "cause_of_reason",
    "cause_of_role",
    "evidence_of",
    "headline_of",
    "is_wordless",
    "message_of",
    "outcome_text",
    "place_of",
    "proven_cause",
    "with_diagnosis",
    "with_root_cause",
]

NEVER_FITS_CAUSE = "never-fits"
"""Of a job of which no node could take an instance, however long it waits."""
_OF_JOBS: Mapping[str, str] = {
    reasons.SCHEDULE_TIMEOUT: "unschedulable",
    reasons.NEVER_FITS: NEVER_FITS_CAUSE,
    reasons.DEADLINE_EXCEEDED: "time-limit",
    reasons.DEPENDENCY_TIMEOUT: "dependency-timeout",
}
"""Reasons that no instance fails with -> id of the cause."""

_SIGNALS: Mapping[int, str] = {
    2: "user-interrupt",
    4: "segfault",
    6: "segfault",
    7: "segfault",
    11: "segfault",
}
_EXIT_CODES: Mapping[int, str] = {
    126: "container-start-error",
    127: "container-start-error",
}

_CAUSES: Mapping[str, tuple[str, str]] = {
    "container-start-error": ("configuration", "no"),
    "dependency-timeout": ("configuration", "once"),
    "evicted": ("resource", "yes"),
    "host-out-of-memory": ("resource", "no"),
    "image-pull-failure": ("configuration", "no"),
    "instance-deleted": ("infrastructure", "yes"),
    "never-fits": ("resource", "no"),
    "node-lost": ("infrastructure", "yes"),
    "not-admitted": ("configuration", "no"),
    "output-failed": ("infrastructure", "no"),
    "preempted": ("preemption", "yes"),
    "python-exception": ("user-error", "no"),
    "segfault": ("user-error", "once"),
    "time-limit": ("preemption", "no"),
    "unknown": ("infrastructure", "unknown"),
    "unschedulable": ("resource", "yes"),
    "user-interrupt": ("user-error", "no"),
}
"""Id of the cause -> category, and whether another try can help: yes, once, no, unknown."""

_TRIED = re.compile(r"\(tried \d+ times\)")
"""Of an upload that failed, in the words of the agent: the storage was away, which may pass."""
_SAY_NOTHING = frozenset({"", "Error", reasons.INSTANCE_FAILED})
"""Reasons of whatever ended with an exit code."""
_LOST_PEER = "peer-connection-lost"
_UNKNOWN = "unknown"
_OWN_CODES = 128
"""Up to this exit codes are a program's own; those above tell of a signal."""
_WORDS = 120
"""Characters of the words of a headline: the limit shall be seen, too."""

_KEPT_WHOLE = 100
"""Of a proof, which a limit names too: of a long one the middle is left out there."""

_TOLD_CONFIDENCE, _GUESSED_CONFIDENCE = 0.9, 0.3
"""Of a reason that the runtime gives, and of what only an exit code or signal hints at."""


def proven_cause(reason: str, known: Reasons) -> str:
    """Return the id of the cause that a reason proves; "" for none. `known`: what reasons say."""
    return known[reason].cause if reason in known else _OF_JOBS.get(reason, "")


def cause_id(*, exit_code: int | None, signal: int | None) -> str:
    """Return the id that signal or exit code stand for, else `unknown`."""
    if signal is None and exit_code is not None and exit_code > 128:
        signal = exit_code - 128
    if signal is not None:
        return _SIGNALS.get(signal, "unknown")
    return _EXIT_CODES.get(exit_code or 0, "unknown")


def cause_of_reason(
    *,
    reason: str,
    message: str,
    at: float | None,
    role: str | None = None,
    index: int | None = None,
    attempt: int | None = None,
    exit_code: int | None = None,
    signal: int | None = None,
    known: Reasons = OWN_REASONS,
    cause: str = "",
) -> RootCause:
    """Root cause by a reason, an exit code or a signal, with who failed and how.

    `cause`: its id, where more proves it than the reason.
    """
    proven = cause or proven_cause(reason, known)
    found = proven or cause_id(exit_code=exit_code, signal=signal)
    category, retryable = _CAUSES[found]
    if found == _UNKNOWN and reason in _SAY_NOTHING and _ended_by_itself(exit_code, signal):
        category = "user-error"
    if reason == reasons.OUTPUT_FAILED and _TRIED.search(message):
        retryable = "once"
    return RootCause(
        id=found,
        category=category,
        retryable=retryable,
        confidence=_TOLD_CONFIDENCE if proven else _GUESSED_CONFIDENCE,
        evidence=message or reason,
        role=role,
        index=index,
        attempt=attempt,
        reason=reason,
        message=message,
        at=at,
        exit_code=exit_code,
        signal=signal,
    )


def headline_of(cause: RootCause) -> str:
    """Return who failed, how, and the words that say why, in one line; "" where nobody did."""
    who = _who(cause)
    if not who:
        return ""
    ended, how = _ended(cause), _how(cause)
    words = without_name(cause.evidence or cause.message or "", who)
    words = words.removesuffix(f" ({cause.reason})")  # it is named before them
    words = headline(words, most=_WORDS)
    if words in how or (ended and words.startswith(ended)):
        words = ""
    return ": ".join(filter(None, [who, how, words]))


def is_wordless(cause: RootCause) -> bool:
    """Whether nothing but an exit code or a signal is known of why a program ended."""
    if cause.key is None or not _ended(cause):
        return False
    told = {f"{_who(cause)}: {_ended(cause)}", _who(cause)}
    return headline_of(replace(cause, evidence="", message="")) in told and (
        not cause.message or cause.message.startswith(_ended(cause))
    )


def _ended_by_itself(exit_code: int | None, signal: int | None) -> bool:
    return signal is None and exit_code is not None and 0 < exit_code <= _OWN_CODES


def message_of(cause: RootCause | None, limit: str) -> str:
    """Return the message of a job that failed: first the cause, then the limit that ended it.

    Where the limit is what happened (a deadline), or tells of the same instance, it says all; where it repeats the
    proof for a peer, which met the same mistake, the cause alone does.
    """
    if cause is None or not (who := _who(cause)):
        return limit
    if limit.startswith(f"{who}: "):
        rest = limit.removeprefix(f"{who}: {_ended(cause)}; ")
        if rest == limit or not _ended(cause):
            return limit
        limit = rest  # how it ended is told with the words that say why
    if cause.message == limit:
        return limit if who in limit else f"{who}: {limit}"
    first = headline_of(cause)
    if cause.evidence and cause.evidence[:_KEPT_WHOLE] in limit:
        return first
    return f"{first}; {limit}" if limit else first


def outcome_text(*, state: str, reason: str, message: str) -> str:
    """Return reason and message of a job as one line, of one that failed its cause first."""
    if state == "Failed" and reason and message:
        return f"{headline(message)} ({reason})"
    said = headline(message)
    return ": ".join(filter(None, [reason, said if said.lower() != reason.lower() else ""]))


def _who(cause: RootCause) -> str:
    role = cause.role or ""
    return role if cause.index is None else f"{role}-{cause.index}"


def _how(cause: RootCause) -> str:
    """Return `exit code 1 (python-exception)`, `signal 9 (OOMKilled)`, `NodeLost`, `Evicted`, ...

    Of what its platform ended the signal says nothing: TERM, and KILL where that did not do.
    """
    reason, ended = cause.reason or "", _ended(cause)
    if cause.category == "preemption" or cause.id in ENDED_BY_PLATFORM:
        ended = ended if reason in _SAY_NOTHING else ""
    named = [cause.id] if cause.advice and cause.id != reason.lower() else []
    why = ", ".join([*([reason] if reason not in _SAY_NOTHING else []), *named])
    return f"{ended} ({why})" if ended and why else ended or why


def _ended(cause: RootCause) -> str:
    if cause.signal is not None:
        return f"signal {cause.signal}"
    return "" if cause.exit_code is None else f"exit code {cause.exit_code}"


def evidence_of(cause: DiagnosedCause) -> str:
    """Proof of a cause in the log, as a line for people; empty where no log has one."""
    if not cause.advice:
        return ""
    return f"{_named(cause)}: {headline(cause.evidence)}"


def place_of(cause: DiagnosedCause) -> str:
    """Return where the line of `evidence_of` stands: file, line and rank; empty where no log told it."""
    if not cause.advice or cause.file is None:
        return ""
    line = f":{cause.line}" if cause.line is not None else ""
    rank = f" (rank {cause.rank})" if cause.rank is not None else ""
    return f"{cause.file}{line}{rank}"


def cause_lines(cause: RootCause) -> tuple[str, ...]:
    """Return a cause as lines: its headline, then what a log says: name, proof, place, and what to do."""
    first = headline_of(cause) or cause.message or cause.id
    if cause.attempt:
        first = f"{first} (attempt {cause.attempt})"
    if not cause.advice:
        return (first,)
    parts = {
        "cause": _named(cause),
        "proof": headline(cause.evidence),
        "where": place_of(cause),
        "what to do": cause.advice,
    }
    return (first, *(f"  {head}: {text}" for head, text in parts.items() if text))


def _named(cause: DiagnosedCause) -> str:
    return f"{cause.id} ({cause.category}, {100 * cause.confidence:.0f} % sure)"


def with_diagnosis(known: RootCause, found: DiagnosedCause, *, reasons: Reasons) -> RootCause:
    """Return a root cause with what the logs say; where both name a cause, the runtime is believed.

    `reasons`: what those of the runtime say.
    """
    if found.id == "unknown":
        return known
    if known.id != found.id and proven_cause(known.reason or "", reasons):
        return known
    other = found.role is not None and (known.role, known.index) != (found.role, found.index)
    if other and found.id == _LOST_PEER and is_wordless(known):
        return known  # the peer that was lost is the one that ended first
    if known.id == found.id and found.file is None:
        found = replace(found, evidence=known.evidence)  # the runtime's own words say it whole
    if found.role is None:  # no log proves it: whose end it was is known all the same
        found = replace(found, role=known.role, index=known.index, attempt=known.attempt)
    elif (known.role, known.index) != (found.role, found.index):
        return RootCause(**found.to_document())
    return replace(known, **found.to_document())


def with_root_cause(decision: Decision, root: RootCause, *, now: float, then: str = "") -> Decision:
    """Return the last decision of a failed job with another root cause, and what proves it told.

    `then`: what came after it, in words, before a limit was used up.
    """
    root = _with_end(root, decision.new_ledger)
    old = decision.new_ledger.job
    limit = "; ".join(filter(None, (then, _limit_of(old))))
    job = replace(old, root_cause=root, limit=limit, message=message_of(root, limit))
    proof = evidence_of(root)
    failed = outcome_text(state=job.state, reason=job.reason, message=job.message)
    events = [
        replace(each, message=failed) if each.reason == reasons.JOB_FAILED else each
        for each in decision.events
        if each.reason != reasons.ROOT_CAUSE
    ]
    told = Event(
        at=now,
        reason=reasons.ROOT_CAUSE,
        message=proof,
        role=root.role or "",
        index=root.index,
        attempt=root.attempt,
        level="error",
    )
    return replace(
        decision,
        new_ledger=replace(decision.new_ledger, job=job),
        events=tuple(_before_the_end(events, [told] if proof else [])),
    )


def _before_the_end(events: Sequence[Event], told: Sequence[Event]) -> Iterator[Event]:
    """Yield events in their order, what is `told` of the whole right before the one that says how the job ended."""
    ends = [number for number, each in enumerate(events) if each.reason == reasons.JOB_FAILED]
    place = ends[-1] if ends else 0
    yield from (*events[:place], *told, *events[place:])


def _limit_of(job: JobEntry) -> str:
    """Return what let its failure end a job; older versions have only its message, which began with that."""
    if job.limit or job.message == message_of(job.root_cause, ""):
        return job.limit
    who = _who(job.root_cause) if job.root_cause is not None else ""
    return job.message.partition(f"; {who}: ")[0] if who else job.message


def _with_end(root: RootCause, ledger: Ledger) -> RootCause:
    """Return a root cause with how its instance ended, where that is another than was known at first."""
    entry = None if root.key is None else ledger.instances.get(root.key)
    if root.reason or entry is None or entry.attempt != root.attempt:
        return root
    if entry.end.failure_class is None:  # it did not end by itself
        return root
    return replace(
        root,
        reason=entry.reason,
        message=entry.message,
        exit_code=entry.end.exit_code,
        signal=entry.end.signal,
        at=entry.finished_at,
    )


def cause_of_failure(failure: Failure) -> RootCause:
    """Return the cause of one failure, with what its log says where that is known."""
    known = {failure.reason: failure.known} if failure.known else {}
    told = cause_of_reason(
        reason=failure.reason or reasons.INSTANCE_FAILED,
        message=failure.message or failure.describe(),
        at=failure.at,
        role=failure.role,
        index=failure.index,
        attempt=failure.attempt,
        exit_code=failure.exit_code,
        signal=failure.signal,
        known=known,
    )
    return _explained(told, failure.diagnosed, known)


def cause_of_diagnosis(told: InstanceDiagnosis, known: Reasons) -> RootCause:
    """Return the cause of an attempt's end by what its log says of it. `known`: what reasons of the runtime say."""
    ended = cause_of_reason(
        reason=told.reason or reasons.INSTANCE_FAILED,
        message="",
        at=told.finished_at,
        role=told.role,
        index=told.index,
        attempt=told.attempt,
        exit_code=told.exit_code,
        signal=told.signal,
        known=known,
    )
    return _explained(ended, told, known)


def _explained(cause: RootCause, told: InstanceDiagnosis | None, known: Reasons) -> RootCause:
    """Return the cause of an attempt's end with what its own log says."""
    if told is None:
        return cause
    found = replace(told.cause, role=told.role, index=told.index, attempt=told.attempt)
    return with_diagnosis(cause, found, reasons=known)


def cause_of_role(
    spec: ResolvedJob,
    roles: Mapping[str, RoleEntry],
    instances: Mapping[InstanceKey, InstanceEntry],
    name: str,
    *,
    known: Reasons,
    diagnoses: Mapping[AttemptKey, InstanceDiagnosis],
) -> RootCause | None:
    """Root cause of a role's failure: its earliest failure, or that of a role it depends on.

    One that only lost its peers comes after those that did not.
    """
    if not name:
        return None
    for upstream in _explaining_roles(spec, roles, name):
        failed = [
            entry
            for entry in instances.values()
            if entry.role == upstream
            and entry.end.failure_class is not None
            and entry.final
            and entry.state == "failed"
        ]
        if failed:
            told = {each.key: diagnoses.get(each.attempt_key) for each in failed}
            first = min(failed, key=lambda each: (lost_peers(told[each.key]), *_when(each)))
            cause = cause_of_reason(
                reason=first.reason,
                message=first.message,
                at=first.finished_at or first.last_transition_at,
                role=first.role,
                index=first.index,
                attempt=first.attempt,
                exit_code=first.end.exit_code,
                signal=first.end.signal,
                known=known,
            )
            return _explained(cause, told[first.key], known)
    entry = roles[name]
    return cause_of_reason(
        reason=entry.reason,
        message=entry.message,
        at=entry.last_transition_at,
        role=name,
        known=known,
    )


def _when(entry: InstanceEntry) -> tuple[float, bool, int]:
    """Order failures in time; of two at the same moment, one ended by TERM is the consequence."""
    pulled_down = ended_by_term(signal=entry.end.signal, exit_code=entry.end.exit_code)
    return entry.finished_at or entry.last_transition_at, pulled_down, entry.index


def _explaining_roles(spec: ResolvedJob, roles: Mapping[str, RoleEntry], name: str) -> list[str]:
    """Return the role itself, after the failed roles that it waited for, if that is why it failed."""
    if roles[name].reason != reasons.DEPENDENCY_FAILED:
        return [name]
    found: list[str] = []
    for dependency in spec.role(name).depends_on:
        if roles[dependency.role].state == "Failed":
            found += _explaining_roles(spec, roles, dependency.role)
    return [*found, name]

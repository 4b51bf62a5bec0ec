"""Which of the events explains the end: the earliest sure one over all ranks. Pure.

Weights compare events: the confidence of the signature, less for what follows from others, for what
programs live through, for what says little. Of those that weigh about as much as the heaviest, the
earliest is the root; what follows from another rank or an earlier line is listed apart.
"""

from __future__ import annotations

import dataclasses
import signal
from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_training.documents.text import AGENT_LINE, headline
from airflow_training.logs.diagnosis import facts as seen
from airflow_training.logs.diagnosis.blame import blamed_rank
from airflow_training.logs.diagnosis.catalogue import Catalogue, Cause, Retry
from airflow_training.logs.diagnosis.clocks import skews
from airflow_training.logs.diagnosis.collectives import divided, mismatches
from airflow_training.logs.diagnosis.diverged import as_hints_beside_the_cause, diverged
from airflow_training.logs.diagnosis.elastic import first_rank_of
from airflow_training.logs.diagnosis.evidence import Incident, events_of, is_order
from airflow_training.logs.diagnosis.markers import GAP
from airflow_training.logs.diagnosis.ordering import (
    first_proof,
    only_followed,
    rank_events,
    with_line,
)
from airflow_training.logs.diagnosis.situation import in_situation
from airflow_training.logs.diagnosis.stalled import StalledRank, is_running, stalled
from airflow_training.logs.diagnosis.stopped import (
    continued,
    first_to_exit,
    stopped_by_facts,
    stopped_by_signal,
    stopped_with_run,
    without_ends,
    without_orders,
)
from airflow_training.logs.diagnosis.weights import (
    BESIDE_AN_EXCEPTION,
    WeightedEvent,
    own_first,
    weigh,
    without_waits,
)
from airflow_training.logs.model import Diagnosis, FileScan, Finding, FoundCause, InstanceFact

__all__ = ["diagnose"]

_LEAST = 0.05
"""Weight below which an event explains nothing."""
_MOST_CAUSES = 4
_GUESS = 0.45
"""How sure the most frequent reason for an end is, where nothing tells another: too little to act on."""
_ERROR_LINE = "unknown/error-line"
_UNKNOWN_CONFIDENCE = 0.3
_UNKNOWN, _HANG = "unknown", "hang"
_PRINTED_NOTHING = (
    "It printed nothing: start its command by hand in its folder, and have Python keep no output back"
    " (PYTHONUNBUFFERED=1)."
)
_SAID_LITTLE = "See what it printed before its last line, and where it ends with this exit code."
_SIGNALLED = (
    "{}, and nothing says who sent it: look (its own code, a person, a batch system, or for SIGKILL the"
    " kernel where memory ran out: dmesg tells)."
)


def diagnose(
    scans: Sequence[FileScan],
    facts: Sequence[InstanceFact] = (),
    health: Sequence[Finding] = (),
    *,
    catalogue: Catalogue,
) -> Diagnosis:
    """Return why a run failed, the root cause first; no cause for one that is healthy.

    `scans`: one for each log, made with the signatures of the catalogue and with `MARKERS`.
    `facts`: what the runtime saw of its instances. `health`: what was found in its metrics.
    """
    found = in_situation(_diagnose(scans, facts, health, catalogue), scans)
    gaps = [
        f"{scan.origin.file}:{hit.line}"
        for scan in scans
        for hit in scan.hits
        if hit.signature == GAP
    ]
    return dataclasses.replace(found, gaps=tuple(gaps))


def _diagnose(
    scans: Sequence[FileScan],
    facts: Sequence[InstanceFact],
    health: Sequence[Finding],
    catalogue: Catalogue,
) -> Diagnosis:
    failures = [fact for fact in facts if seen.failed(fact)]
    lost = list(diverged(health, scans, catalogue))
    ordered = stopped_with_run(scans, facts)
    if facts and not (failures or ordered) and not any(is_running(fact) for fact in facts):
        return _explain(weigh(lost, first_rank=None), scans, ()) if lost else Diagnosis()
    silent = stalled(health, scans, facts)
    events = [*seen.events_of(failures, catalogue=catalogue)]
    for number, (scan, skew) in enumerate(zip(scans, skews(scans), strict=True)):
        told = events_of(scan, log=number, catalogue=catalogue, skew_seconds=skew)
        events += without_waits(own_first(told, catalogue.own))
    parts = continued(scans)
    events = [each for each in events if each.log not in parts or not is_order(each.cause)]
    if failures:
        events = list(without_orders(events, stopped_by_facts(scans, failures)))
        events = _without_guesses(events, catalogue)
    else:
        events = [each for each in without_ends(events, ordered) if not each.survived]
        stopped = stopped_by_signal(scans, events)
        events = list(without_orders(events, stopped))
        events += first_to_exit(scans, stopped, catalogue) if not events else ()
    events += [*mismatches(events, catalogue), *divided(scans, events, catalogue)]
    causes = {each.cause.id for each in events if each.kind == "cause"}
    lost = [each for each in lost if causes.isdisjoint(each.cause.yields_to)]
    events += as_hints_beside_the_cause(lost, only_followed(events))
    first_rank = first_rank_of(scans)
    weighed = weigh(only_followed(events), first_rank=first_rank)
    if not failures and not any(_ends_a_run(each) for each in weighed):
        return _without_evidence(failures, silent, scans, catalogue)
    heavy = [each for each in weighed if each.weight >= _LEAST]
    if not heavy:
        return _without_evidence(failures, silent, scans, catalogue)
    found = _explain(heavy, scans, failures, first_rank=first_rank)
    root = found.causes[0]
    if root.id == _UNKNOWN and failures and _says_itself(root.evidence, heavy):
        category = _charged(failures[0], root.category)
        root = replace(root, confidence=_UNKNOWN_CONFIDENCE, category=category)
        found = replace(found, causes=(root, *found.causes[1:]))
    return found


def _says_itself(line: str, heavy: Iterable[WeightedEvent]) -> bool:
    """Return whether a program calls a line an error, and no launcher says by it how a process has ended."""
    return any(each.event.text == line and each.event.signature == _ERROR_LINE for each in heavy)


def _charged(fact: InstanceFact, otherwise: str) -> str:
    """Return the category of an end that nothing explains, as the run itself has it."""
    by_itself = seen.ended_by_itself(fact) and fact.reason in seen.SAY_NOTHING
    return "user-error" if by_itself else otherwise


def _without_guesses(events: Iterable[Incident], catalogue: Catalogue) -> list[Incident]:
    """Return the events where the runtime saw the ends: it would have told the reason that texts guess."""
    unknown = catalogue.causes.get(_UNKNOWN)
    sure = [each for each in events if not each.guess]
    if unknown is not None:
        sure += (replace(each, cause=unknown) for each in events if each.guess)
    return sure


def _ends_a_run(weighed: WeightedEvent) -> bool:
    """Return whether an event alone says that a run failed, also where nobody else says so."""
    event = weighed.event
    return event.kind != "hint" and (event.raised or event.last or not event.survivable)


def _explain(
    heavy: Sequence[WeightedEvent],
    scans: Sequence[FileScan],
    failures: Sequence[InstanceFact],
    *,
    first_rank: int | None = None,
) -> Diagnosis:
    ranking = rank_events(heavy, scans)
    root = first_proof(ranking[0], heavy)
    others: dict[str, WeightedEvent] = {}
    for each in ranking[1:]:
        if each.event.cause.id != root.event.cause.id:
            others.setdefault(each.event.cause.id, each)
    alternatives = [
        each for each in others.values() if each.event.kind != "consequence" or root.weight < 0.6
    ]
    confidence = _confidence(root, alternatives, agreed=_agreed(root, heavy), known=bool(failures))
    causes = [_found(root.event, confidence, scans, first_rank=first_rank, among=heavy)]
    for each in sorted(alternatives, key=lambda each: -each.weight)[: _MOST_CAUSES - 1]:
        less = min(each.weight, confidence) * 0.5
        causes.append(_found(each.event, less, scans, first_rank=first_rank, among=heavy))
    return Diagnosis(
        causes=tuple(causes),
        consequences=tuple(_consequences(root, heavy, scans)),
        healthy=False,
    )


def _agreed(root: WeightedEvent, heavy: Iterable[WeightedEvent]) -> bool:
    """Return whether both the runtime and a log say the same."""
    same = [each.event.log is None for each in heavy if each.event.cause is root.event.cause]
    return any(same) and not all(same)


def _confidence(
    root: WeightedEvent, alternatives: Iterable[WeightedEvent], *, agreed: bool, known: bool
) -> float:
    """Return how sure the answer is: less where something else explains the end about as well."""
    sure = max(root.weight, root.event.confidence * 0.5, root.event.sure)
    if agreed:
        sure = 1 - (1 - sure) * 0.5
    rivals = [
        each.weight
        for each in alternatives
        if each.event.kind == "cause" and each.event.cause.generic < 2 and not each.event.survived
    ]
    if not root.event.raised and any(each.event.raised for each in alternatives):
        sure *= BESIDE_AN_EXCEPTION
    if rivals:
        sure *= 1 - 0.4 * min(1.0, max(rivals) / max(root.weight, 1e-9))
    if not known and not root.event.raised:
        sure *= 0.95
    if root.event.guess:
        sure = min(sure, _GUESS)
    return round(min(sure, 0.99), 2)


def _found(
    event: Incident,
    confidence: float,
    scans: Sequence[FileScan],
    *,
    first_rank: int | None = None,
    among: Sequence[WeightedEvent] = (),
) -> FoundCause:
    event = with_line(event, among)
    scan = scans[event.log] if event.log is not None else None
    return _of(
        event.cause,
        confidence=confidence,
        rank=blamed_rank(event, scans, among, first_rank=first_rank),
        file=scan.origin.file if scan is not None else None,
        line=event.line,
        offset=event.offset,
        evidence=event.text,
        retry="once" if event.guess else event.retry,
        frames=event.frames,
    )


def _consequences(
    root: WeightedEvent, heavy: Sequence[WeightedEvent], scans: Sequence[FileScan]
) -> Iterable[FoundCause]:
    """Yield what followed, of each cause and rank the first; the same cause on other ranks too."""
    proof = with_line(root.event, heavy)
    told: set[tuple[str, int | None, int | None]] = {
        (each.cause.id, each.log, each.rank) for each in (root.event, proof)
    }
    events = sorted(
        (each.event for each in heavy if each.event.log is not None),
        key=lambda each: (each.log or 0, each.line or 0),
    )
    for each in events:
        if each.kind == "hint" or each.survivable:
            continue
        if each.kind == "cause" and each.cause.id != root.event.cause.id:
            continue  # another explanation, not a consequence
        key = (each.cause.id, each.log, each.rank)
        if key not in told:
            told.add(key)
            yield _found(each, each.confidence, scans)


def _without_evidence(
    failures: Sequence[InstanceFact],
    silent: StalledRank | None,
    scans: Sequence[FileScan],
    catalogue: Catalogue,
) -> Diagnosis:
    """Return what can be said where no line explains anything."""
    hang, unknown = catalogue.causes.get(_HANG), catalogue.causes.get(_UNKNOWN)
    if silent is not None and hang is not None:
        found = _of(
            hang,
            confidence=silent.confidence,
            rank=silent.rank,
            file=silent.file,
            line=silent.line,
            offset=silent.offset,
            evidence=silent.evidence,
        )
        return Diagnosis(causes=(found,), healthy=False)
    if not failures:
        return Diagnosis()
    if unknown is None:
        return Diagnosis(healthy=False)
    first = failures[0]
    evidence, own = seen.describe_fact(first), _log_of(first, scans)
    last = "" if own is None else last_own_line(own.tail)
    found = _of(
        unknown,
        confidence=_UNKNOWN_CONFIDENCE,
        rank=first.rank,
        evidence=evidence,
    )
    if last:
        found = replace(found, evidence=f"{evidence}: last line: {last}", advice=_SAID_LITTLE)
    found = replace(found, category=_charged(first, found.category))
    if by_signal := _signal_name(first):
        found = replace(found, advice=_SIGNALLED.format(by_signal))
    elif own is not None and not own.lines:
        found = replace(found, advice=_PRINTED_NOTHING)
    if own is not None and not own.lines:
        found = replace(found, evidence=f"{evidence}; it printed nothing")
    return Diagnosis(causes=(found,), healthy=False)


def _signal_name(fact: InstanceFact) -> str:
    """Return which signal ended an instance, in words; "" for none."""
    number = seen.signal_number(fact)
    if number is None or number not in set(signal.Signals):
        return ""
    name = signal.Signals(number).name
    return (
        f"{name} ended it"
        if fact.signal is not None
        else f"Exit code {fact.exit_code} tells of {name}"
    )


def last_own_line(tail: Sequence[str]) -> str:
    """Return the last line that a program printed, not its agent beside it; "" for none."""
    return headline("\n".join(line for line in tail if not line.startswith(AGENT_LINE)))


def _log_of(fact: InstanceFact, scans: Sequence[FileScan]) -> FileScan | None:
    """Return the log of an instance, where it is among those of a run."""
    who = (fact.role, fact.index)
    own = [
        each for each in scans if each.origin.role and (each.origin.role, each.origin.index) == who
    ]
    return own[0] if len(own) == 1 else None


def _of(
    cause: Cause,
    *,
    confidence: float,
    rank: int | None,
    evidence: str,
    file: str | None = None,
    line: int | None = None,
    offset: int | None = None,
    retry: Retry | None = None,
    frames: Sequence[str] = (),
) -> FoundCause:
    return FoundCause(
        id=cause.id,
        category=cause.category,
        retryable=retry or cause.retry,
        confidence=round(confidence, 2),
        rank=rank,
        file=file,
        line=line,
        offset=offset,
        evidence=evidence,
        advice=f"{cause.advice.rstrip('.')}: {'; '.join(frames)}" if frames else cause.advice,
    )

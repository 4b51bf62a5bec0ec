"""Which of the events explains the end: the earliest sure one over all ranks. Pure.

Weights compare events: the confidence of the signature, less for what follows from others, for what
programs live through, for what says little. Of those that weigh about as much as the heaviest, the
earliest is the root; what follows from another rank or an earlier line is listed apart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_training.logs.diagnosis import facts as seen
from airflow_training.logs.diagnosis.catalogue import Catalogue, Cause
from airflow_training.logs.diagnosis.clocks import skews
from airflow_training.logs.diagnosis.elastic import first_failure
from airflow_training.logs.diagnosis.evidence import Event, events_of
from airflow_training.logs.model import Diagnosis, FileScan, Finding, FoundCause, InstanceFact

__all__ = ["diagnose"]

_KIND = {"cause": 1.0, "consequence": 0.45, "hint": 0.25}
_GENERIC = (1.0, 0.9, 0.6, 0.3)
_SURVIVABLE = 0.45
"""Of the weight of a text that healthy runs print too, where nobody raised it."""
_SURVIVED = 0.1
_BESIDE_AN_EXCEPTION = 0.9
"""Of the weight of a text outside the exception that ended its rank."""
_ABOUT_AS_HEAVY = 0.75
_SAME_MOMENT_SECONDS = 1.0
"""Clocks of nodes and buffers of launchers differ by about so much."""
_ONE_RUN_SECONDS = 180 * 86_400.0
"""Times farther apart are not of one calendar: one of them was written without its year."""
_LEAST = 0.05
"""Weight below which an event explains nothing."""
_SHORTLY_BEFORE_LINES = 30
_JUST_BEFORE_LINES = 8
"""Of what programs live through: it may be about something else."""
_PROVES = 0.55
_MOST_CAUSES = 4
_UNKNOWN, _HANG = "unknown", "hang"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Weighed:
    event: Event
    weight: float


def diagnose(
    scans: Sequence[FileScan],
    facts: Sequence[InstanceFact] = (),
    health: Sequence[Finding] = (),
    *,
    catalogue: Catalogue,
) -> Diagnosis:
    """Return why a run failed, the root cause first; nothing for one that is healthy.

    `scans`: one for each log, made with the signatures of the catalogue and with `MARKERS`.
    `facts`: what the runtime saw of its instances. `health`: what was found in its metrics.
    """
    failures = [fact for fact in facts if seen.failed(fact)]
    if facts and not failures:
        return Diagnosis()
    events = [*seen.events_of(failures, catalogue=catalogue)]
    for number, (scan, skew) in enumerate(zip(scans, skews(scans), strict=True)):
        events += events_of(scan, log=number, catalogue=catalogue, skew_seconds=skew)
    if not failures:
        events = [each for each in events if not each.survived]
    first_rank = _first_rank(scans)
    weighed = _weigh(events, first_rank=first_rank)
    if not failures and not any(_ends_a_run(each) for each in weighed):
        return _without_evidence(failures, health, catalogue)
    heavy = [each for each in weighed if each.weight >= _LEAST]
    if not heavy:
        return _without_evidence(failures, health, catalogue)
    return _explain(heavy, scans, failures, first_rank=first_rank)


def _ends_a_run(weighed: _Weighed) -> bool:
    """Return whether an event alone says that a run failed, also where nobody else says so."""
    event = weighed.event
    return event.kind != "hint" and (event.raised or event.last or not event.survivable)


def _first_rank(scans: Sequence[FileScan]) -> int | None:
    """Return the rank that the launcher saw failing first."""
    for scan in scans:
        first = first_failure(scan.hits)
        if first is not None and first.rank is not None:
            return first.rank
    return None


def _weigh(events: Sequence[Event], *, first_rank: int | None) -> list[_Weighed]:
    raised_in: dict[tuple[int | None, int | None], set[str]] = defaultdict(set)
    for each in events:
        if each.raised:
            raised_in[each.log, each.rank].add(each.cause.id)

    def beside(event: Event) -> bool:
        known = raised_in.get((event.log, event.rank))
        return known is not None and event.cause.id not in known

    return [
        _Weighed(
            event=each,
            weight=_weight(each, beside=beside(each), first=each.rank == first_rank),
        )
        for each in events
    ]


def _weight(event: Event, *, beside: bool, first: bool) -> float:
    """Return how much an event explains; `beside`: an exception of another cause ended the rank."""
    weight = event.confidence * _KIND[event.kind] * _GENERIC[event.cause.generic]
    if event.survivable and not event.raised:
        weight *= _SURVIVABLE
    if beside and not event.raised:
        weight *= _BESIDE_AN_EXCEPTION
    if event.survived:
        weight *= _SURVIVED
    return min(1.0, weight * 1.05) if first else weight


def _explain(
    heavy: Sequence[_Weighed],
    scans: Sequence[FileScan],
    failures: Sequence[InstanceFact],
    *,
    first_rank: int | None,
) -> Diagnosis:
    ranking = _ranked(heavy, scans)
    root = _first_proof(ranking[0], heavy)
    others: dict[str, _Weighed] = {}
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


def _first_proof(root: _Weighed, heavy: Iterable[_Weighed]) -> _Weighed:
    """Return the first event shortly before the root that tells the same in the same log."""
    found = root.event
    same = [
        each.event
        for each in heavy
        if each.event.cause is found.cause
        and each.event.kind != "hint"
        and each.event.confidence >= _PROVES
        and each.event.log == found.log
        and (each.event.rank == found.rank or None in (each.event.rank, found.rank))
    ]
    for event in sorted(same, key=lambda event: -(event.line or 0)):
        near = _JUST_BEFORE_LINES if event.survivable else _SHORTLY_BEFORE_LINES
        if 0 <= (found.line or 0) - (event.line or 0) <= near:
            found = replace(event, rank=event.rank if event.rank is not None else found.rank)
    return _Weighed(event=found, weight=root.weight)


def _ranked(heavy: Sequence[_Weighed], scans: Sequence[FileScan]) -> list[_Weighed]:
    """Return the root first: the earliest of those about as heavy as the heaviest; others by weight."""
    most = max(each.weight for each in heavy)
    near = [each for each in heavy if each.weight >= _ABOUT_AS_HEAVY * most]
    causes = [each.event for each in near if each.event.kind == "cause"]
    first = [each for each in near if not any(_follows(each.event, cause) for cause in causes)]
    root = _earliest(first or near, scans)
    return [root, *sorted((each for each in heavy if each is not root), key=lambda e: -e.weight)]


def _follows(event: Event, cause: Event) -> bool:
    """Return whether a consequence comes from a cause: one of another rank, or an earlier line.

    Whatever the clocks say: ranks wait for each other, so one that times out waits for another.
    """
    if event.kind != "consequence":
        return False
    other_rank = None not in (event.rank, cause.rank) and event.rank != cause.rank
    return other_rank or event.log != cause.log or (cause.line or 0) < (event.line or 0)


def _earliest(near: Sequence[_Weighed], scans: Sequence[FileScan]) -> _Weighed:
    """Return what happened first: the runtime's facts, then by time or, without times, by step."""
    facts = [each for each in near if each.event.log is None]
    if facts:
        return max(facts, key=lambda each: each.weight)
    firsts: dict[int | None, _Weighed] = {}
    for each in near:  # in a log, lines tell the order
        known = firsts.get(each.event.log)
        if known is None or (each.event.line or 0) < (known.event.line or 0):
            firsts[each.event.log] = each
    candidates = list(firsts.values())
    times = [each.event.time for each in candidates]
    known_times = [time for time in times if time is not None]
    if len(known_times) == len(times) and max(known_times) - min(known_times) < _ONE_RUN_SECONDS:
        begin = min(known_times)
        candidates = [
            each
            for each in candidates
            if each.event.time is not None and each.event.time <= begin + _SAME_MOMENT_SECONDS
        ]
    return min(
        candidates,
        key=lambda each: (
            -round(each.weight, 1),
            each.event.time if each.event.time is not None else float("inf"),
            _step_at(each.event, scans),
            each.event.log if each.event.log is not None else -1,
        ),
    )


def _step_at(event: Event, scans: Sequence[FileScan]) -> float:
    """Return the last step that its log reports before an event: who stopped first has the least."""
    if event.log is None or event.line is None:
        return 0.0
    last = 0.0
    for series in scans[event.log].series:
        for line, step in zip(series.lines.tolist(), series.steps.tolist(), strict=True):
            if line < event.line and step > last:
                last = step
    return last


def _agreed(root: _Weighed, heavy: Iterable[_Weighed]) -> bool:
    """Return whether both the runtime and a log say the same."""
    same = [each.event.log is None for each in heavy if each.event.cause is root.event.cause]
    return any(same) and not all(same)


def _confidence(
    root: _Weighed, alternatives: Iterable[_Weighed], *, agreed: bool, known: bool
) -> float:
    """Return how sure the answer is: less where something else explains the end about as well."""
    sure = max(root.weight, root.event.confidence * 0.5)
    if agreed:
        sure = 1 - (1 - sure) * 0.5
    rivals = [
        each.weight
        for each in alternatives
        if each.event.kind == "cause" and each.event.cause.generic < 2 and not each.event.survived
    ]
    if not root.event.raised and any(each.event.raised for each in alternatives):
        sure *= _BESIDE_AN_EXCEPTION
    if rivals:
        sure *= 1 - 0.4 * min(1.0, max(rivals) / max(root.weight, 1e-9))
    if not known and not root.event.raised:
        sure *= 0.95
    return round(min(sure, 0.99), 2)


def _found(
    event: Event,
    confidence: float,
    scans: Sequence[FileScan],
    *,
    first_rank: int | None = None,
    among: Sequence[_Weighed] = (),
) -> FoundCause:
    event = _with_line(event, among)
    scan = scans[event.log] if event.log is not None else None
    rank = event.rank
    if rank is None and event.kind != "consequence":
        rank = first_rank
    return _of(
        event.cause,
        confidence=confidence,
        rank=rank,
        file=scan.origin.file if scan is not None else None,
        line=event.line,
        offset=event.offset,
        evidence=event.text,
    )


def _with_line(event: Event, among: Sequence[_Weighed]) -> Event:
    """Return, for what only the runtime saw, the first line of a log that says the same."""
    if event.line is not None:
        return event
    same = [
        each.event
        for each in among
        if each.event.cause is event.cause and each.event.line is not None
    ]
    return min(same, key=lambda each: (each.log or 0, each.line or 0), default=event)


def _consequences(
    root: _Weighed, heavy: Iterable[_Weighed], scans: Sequence[FileScan]
) -> Iterable[FoundCause]:
    """Yield what followed, of each cause and rank the first; the same cause on other ranks too."""
    told: set[tuple[str, int | None, int | None]] = {
        (root.event.cause.id, root.event.log, root.event.rank)
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
    health: Sequence[Finding],
    catalogue: Catalogue,
) -> Diagnosis:
    """Return what can be said where no line explains anything."""
    stalled = next((each for each in health if each.kind == "hang"), None)
    hang, unknown = catalogue.causes.get(_HANG), catalogue.causes.get(_UNKNOWN)
    if stalled is not None and hang is not None:
        found = _of(
            hang,
            confidence=0.6,
            rank=stalled.rank,
            file=stalled.file or None,
            line=stalled.line,
            offset=stalled.offset,
            evidence=stalled.message,
        )
        return Diagnosis(causes=(found,), healthy=False)
    if not failures:
        return Diagnosis()
    if unknown is None:
        return Diagnosis(healthy=False)
    first = failures[0]
    found = _of(unknown, confidence=0.3, rank=first.index, evidence=seen.told(first))
    return Diagnosis(causes=(found,), healthy=False)


def _of(
    cause: Cause,
    *,
    confidence: float,
    rank: int | None,
    evidence: str,
    file: str | None = None,
    line: int | None = None,
    offset: int | None = None,
) -> FoundCause:
    return FoundCause(
        id=cause.id,
        category=cause.category,
        retryable=cause.retry,
        confidence=round(confidence, 2),
        rank=rank,
        file=file,
        line=line,
        offset=offset,
        evidence=evidence,
        advice=cause.advice,
    )

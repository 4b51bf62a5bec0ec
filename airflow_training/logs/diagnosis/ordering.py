"""Which of the events about as heavy was the first, over all ranks, and which line proves it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from airflow_training.logs.diagnosis.evidence import Incident
from airflow_training.logs.diagnosis.facts import BY_CODE
from airflow_training.logs.diagnosis.weights import WeightedEvent
from airflow_training.logs.model import FileScan
from airflow_training.peer_causes import OVER_PEERS

__all__ = [
    "first_proof",
    "named_rank_after",
    "only_followed",
    "rank_events",
    "with_line",
]

_ABOUT_AS_HEAVY = 0.75
_SAME_MOMENT_SECONDS = 1.0
"""Clocks of nodes and buffers of launchers differ by about so much."""
_ONE_RUN_SECONDS = 180 * 86_400.0
"""Times farther apart are not of one calendar: one of them was written without its year."""
_SHORTLY_BEFORE_LINES = 30
_JUST_BEFORE_LINES = 8
"""Of what programs live through: it may be about something else."""
_PROVES = 0.55
_SAYS_LITTLE = 2
"""Of `Cause.generic`: no cause of its own any more."""


def only_followed(events: Sequence[Incident]) -> list[Incident]:
    """Return the events; what a rank says of its connections only follows where another one raised something else.

    Whatever a launcher printed first: the others notice a lost rank at once, and its own words come late.
    """
    own = {each.rank for each in events if _failed_itself(each)}
    return [
        replace(each, kind="consequence")
        if each.cause.id in OVER_PEERS and each.rank is not None and own - {each.rank, None}
        else each
        for each in events
    ]


def _failed_itself(event: Incident) -> bool:
    """Return whether a rank tells of a failure of its own: an exception, or what a program that never trained ends with."""
    told = event.raised or (
        event.last and not event.survivable and event.cause.generic < _SAYS_LITTLE
    )
    return told and event.kind == "cause" and event.cause.id not in OVER_PEERS


def rank_events(heavy: Sequence[WeightedEvent], scans: Sequence[FileScan]) -> list[WeightedEvent]:
    """Return the root first: the earliest of those about as heavy as the heaviest; others by weight."""
    most = max(each.weight for each in heavy)
    near = [each for each in heavy if each.weight >= _ABOUT_AS_HEAVY * most]
    causes = [each for each in near if each.event.kind == "cause"]
    first = [each for each in near if not any(_follows(each, cause) for cause in causes)]
    root = _earliest(first or near, scans)
    return [root, *sorted((each for each in heavy if each is not root), key=lambda e: -e.weight)]


def _follows(followed: WeightedEvent, by: WeightedEvent) -> bool:
    """Return whether a consequence comes from a cause: of another rank, of an earlier line, or an exception that is known and weighs more.

    Whatever the clocks say: ranks wait for each other, so one that times out waits for another. And a child
    may say that its parent has gone before the parent prints with which exception.
    """
    event, cause = followed.event, by.event
    if event.kind != "consequence":
        return False
    other_rank = None not in (event.rank, cause.rank) and event.rank != cause.rank
    earlier = (cause.line or 0) < (event.line or 0)
    ended = cause.raised and bool(cause.signature) and by.weight > followed.weight
    return other_rank or event.log != cause.log or earlier or ended


def _earliest(near: Sequence[WeightedEvent], scans: Sequence[FileScan]) -> WeightedEvent:
    """Return what happened first: the runtime's facts, then by time or, without times, by step."""
    facts = [each for each in near if each.event.log is None and each.event.signature != BY_CODE]
    if facts:
        return max(facts, key=lambda each: each.weight)
    firsts: dict[int | None, WeightedEvent] = {}
    for each in near:  # in a log, lines tell the order
        known = firsts.get(each.event.log)
        if known is None or _before(each.event, known.event):
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


def _before(event: Incident, other: Incident) -> bool:
    """Return whether an event comes first in its log; in one line, the innermost reason of those that say most does."""
    if event.line == other.line:
        return (-event.cause.generic, event.column) > (-other.cause.generic, other.column)
    return (event.line or 0) < (other.line or 0)


def _step_at(event: Incident, scans: Sequence[FileScan]) -> float:
    """Return the last step that its log reports before an event: who stopped first has the least."""
    if event.log is None or event.line is None:
        return 0.0
    last = 0.0
    for series in scans[event.log].series:
        for line, step in zip(series.lines.tolist(), series.steps.tolist(), strict=True):
            if line < event.line and step > last:
                last = step
    return last


def first_proof(root: WeightedEvent, heavy: Iterable[WeightedEvent]) -> WeightedEvent:
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
            found = replace(
                event,
                rank=event.rank if event.rank is not None else found.rank,
                retry=event.retry or found.retry,
            )
    return WeightedEvent(event=found, weight=root.weight)


def named_rank_after(event: Incident, among: Iterable[WeightedEvent]) -> int | None:
    """Return the rank that the same log names shortly after an event, where it says the same again.

    Python prints an exception without a rank, and the watchdog of the process repeats it with one.
    """
    ranks = [
        each.event.rank
        for each in sorted(among, key=lambda each: each.event.line or 0)
        if each.event.cause is event.cause
        and each.event.log == event.log
        and each.event.rank is not None
        and (each.event.named or event.rank is None)
        and 0 < (each.event.line or 0) - (event.line or 0) <= _SHORTLY_BEFORE_LINES
    ]
    return ranks[0] if ranks else None


def with_line(event: Incident, among: Sequence[WeightedEvent]) -> Incident:
    """Return, for what only the runtime saw, the first line of a log that says the same."""
    if event.line is not None:
        return event
    same = [
        each.event
        for each in among
        if each.event.cause is event.cause and each.event.line is not None
    ]
    return min(same, key=lambda each: (each.log or 0, each.line or 0), default=event)

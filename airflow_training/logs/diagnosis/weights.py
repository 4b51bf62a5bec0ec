"""How much each event explains, so that events can be compared. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace

from airflow_training.logs.diagnosis.evidence import Incident

__all__ = ["BESIDE_AN_EXCEPTION", "WeightedEvent", "own_first", "weigh", "without_waits"]

_KIND = {"cause": 1.0, "consequence": 0.45, "hint": 0.25}
_GENERIC = (1.0, 0.9, 0.6, 0.3)
_SURVIVABLE = 0.45
"""Of the weight of a text that healthy runs print too, where nobody raised it."""
_SURVIVED = 0.1
_YIELDING = 0.5
"""Of the weight of a consequence whose own reason some log tells."""
_TRIES = 3
"""From so many lines of one kind on, a program tries again and again."""
_NOT_OF_CONNECTIONS = frozenset({"user-error", "configuration", "resource"})
BESIDE_AN_EXCEPTION = 0.9
"""Of the weight of a text outside the exception that ended its rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightedEvent:
    event: Incident
    weight: float


def weigh(events: Sequence[Incident], *, first_rank: int | None) -> list[WeightedEvent]:
    """Return the events with their weights; `first_rank`: the one that its launcher saw failing first."""
    raised_in: dict[tuple[int | None, int | None], set[str]] = defaultdict(set)
    for each in events:
        if each.raised:
            raised_in[each.log, each.rank].add(each.cause.id)

    told = {each.cause.id for each in events if not each.survived}

    def beside(event: Incident) -> bool:
        known = raised_in.get((event.log, event.rank))
        return known is not None and event.cause.id not in known

    return [
        WeightedEvent(
            event=each,
            weight=_weight(each, beside=beside(each), first=each.rank == first_rank)
            * (_YIELDING if _yields(each, told) else 1.0),
        )
        for each in events
    ]


def _yields(event: Incident, told: Set[str]) -> bool:
    return event.kind == "consequence" and not told.isdisjoint(event.cause.yields_to)


def _weight(event: Incident, *, beside: bool, first: bool) -> float:
    """Return how much an event explains; `beside`: an exception of another cause ended the rank."""
    weight = event.confidence * _KIND[event.kind] * _GENERIC[event.cause.generic]
    if event.survivable and not event.raised:
        weight *= _SURVIVABLE
    if beside and not event.raised:
        weight *= BESIDE_AN_EXCEPTION
    if event.survived:
        weight *= _SURVIVED
    return min(1.0, weight * 1.05) if first else weight


def own_first(events: Sequence[Incident], own: Set[str]) -> Sequence[Incident]:
    """Return the events of one log; of a line that a cause of the user's own explains (`own`: their ids) only that."""
    lines = {each.line for each in events if each.cause.id in own and each.kind == "cause"}
    return [each for each in events if each.cause.id in own or each.line not in lines]


def without_waits(events: Sequence[Incident]) -> Iterator[Incident]:
    """Yield the events of one log; what was tried again and again is lived through where the program came to another failure."""
    tries = Counter((each.rank, each.signature) for each in events if not each.raised)
    last = {(each.rank, each.signature): each.line or 0 for each in events}
    for each in events:
        key = (each.rank, each.signature)
        came_on = tries[key] >= _TRIES and any(
            other.cause is not each.cause
            and _is_of_another_kind(other)
            and (other.line or 0) > last[key]
            for other in events
        )
        yield replace(each, survivable=True) if came_on else each


def _is_of_another_kind(event: Incident) -> bool:
    """Return whether an event does not come from a connection that could not be made."""
    ends = event.kind == "cause" and not event.survivable and not event.cause.generic
    return ends and event.cause.category in _NOT_OF_CONNECTIONS

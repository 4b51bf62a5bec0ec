"""How much each event explains, so that events can be compared. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import dataclass

from airflow_training.logs.diagnosis.evidence import Incident

__all__ = ["BESIDE_AN_EXCEPTION", "WeightedEvent", "weigh"]

_KIND = {"cause": 1.0, "consequence": 0.45, "hint": 0.25}
_GENERIC = (1.0, 0.9, 0.6, 0.3)
_SURVIVABLE = 0.45
"""Of the weight of a text that healthy runs print too, where nobody raised it."""
_SURVIVED = 0.1
_YIELDING = 0.5
"""Of the weight of a consequence whose own reason some log tells."""
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

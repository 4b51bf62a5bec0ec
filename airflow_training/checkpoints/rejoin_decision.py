"""Whether the ranks of a group that was formed again can go on from what some of them still hold. Pure.

Ranks that survived a failure hold the state of their last step boundary, those that came new hold none. State is
taken from a survivor only where all who claim to hold one hold the same, byte for byte: two that differ prove that
one is wrong, and not which. Of a state that is split over ranks, that is so of each of its parts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeAlias

__all__ = [
    "Boxes",
    "CopyFromPeer",
    "PeerState",
    "RestoreFromStore",
    "SaveInFlight",
    "can_commit",
    "choose",
    "choose_parts",
    "newest_orders",
    "overlaps",
]


Boxes: TypeAlias = Mapping[str, tuple[Sequence[int], Sequence[int]]]
"""Name of a tensor -> offset and shape of the part of it that a rank holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerState:
    """What one rank says of itself."""

    step: int | None = None
    """How many steps its state has behind it; None: it holds no state to go on from."""
    sections: Mapping[str, str] = field(default_factory=dict)
    """Digest of each section of the state that all ranks have alike."""
    header: tuple[int, str] = (0, "")
    """Size and digest of what says everything about what a rank without the state is sent."""
    size: int = 0
    """Bytes of the state."""
    began: bool = False
    """It has trained before: it cannot begin at step 0 again."""
    why: str = ""
    """Why it holds nothing."""
    part: str = ""
    """Which part of the state it holds, of one that is split; empty: all of it."""
    parts: int = 1
    """How many parts there are."""
    orders: Mapping[str, Any]
    """What its controller told it when its process began: `epoch`, `order`, `not_after` and more."""

    def to_json(self) -> dict[str, Any]:
        """The state as JSON."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> PeerState:
        """The state that another rank has sent; the counterpart of `to_json`."""
        return cls(**{**told, "header": tuple(told["header"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveInFlight:
    """A save of the group before that a rank still has on its way."""

    save: str
    rank: int
    """In the group that saves."""
    missing: Sequence[int] | None = None
    """The ranks of that group whose part is not written yet, as rank 0 sees it, which commits the save; None on the others."""

    def to_json(self) -> dict[str, Any]:
        """The save as JSON."""
        return asdict(self)

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> SaveInFlight:
        """The save that another rank has told of; the counterpart of `to_json`."""
        return cls(**told)


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyFromPeer:
    """Those without the state get it from one that has it."""

    step: int
    source: int
    newcomers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RestoreFromStore:
    """All ranks restore the newest checkpoint."""

    why: str


def choose(everyone: Sequence[PeerState]) -> CopyFromPeer | RestoreFromStore:
    """Return where the ranks go on from, by rank what each of them says; the same on every rank."""
    holding = {rank: each.step for rank, each in enumerate(everyone) if each.step is not None}
    if not holding:
        reasons = sorted({each.why for each in everyone if each.why})
        return RestoreFromStore("; ".join(["no rank holds a whole state", *reasons]))
    source = min(holding)
    first, step = everyone[source], holding[source]
    if apart := [rank for rank in holding if holding[rank] != step]:
        return RestoreFromStore(
            f"rank {source} holds step {step}, rank {apart[0]} step {holding[apart[0]]}"
        )
    for rank in holding:
        if different := _differing(first.sections, everyone[rank].sections):
            return RestoreFromStore(
                f"ranks {source} and {rank} hold different {', '.join(different)}"
            )
    newest = newest_orders(each.orders for each in everyone)
    limit = newest.get("not_after")
    heard = any(_age(everyone[rank].orders) == _age(newest) for rank in holding)
    if limit is not None and step > limit and not heard:
        return RestoreFromStore(f"the job goes back to step {limit}")
    newcomers = tuple(rank for rank in range(len(everyone)) if rank not in holding)
    return CopyFromPeer(step=step, source=source, newcomers=newcomers)


def choose_parts(everyone: Sequence[PeerState]) -> Mapping[str, CopyFromPeer] | RestoreFromStore:
    """Return from whom each part of the state is taken; the same on every rank.

    As `choose`, for steps that are done on every rank or on none: who is a step behind takes the newer state. A rank that ended
    such a step has had all that it needs of every other one, a rank that is a step behind lost only the last word of it. Two
    survivors cannot be further apart.
    """
    steps = [each.step for each in everyone if each.step is not None]
    newest = max(steps, default=0)
    heard = [
        replace(each, step=None, why="it is a step behind") if each.step == newest - 1 else each
        for each in everyone
    ]
    holding = [each for each in heard if each.step is not None]
    splits = sorted({each.parts for each in holding})
    if len(splits) > 1:  # one was told of a new plan, and lost before all had gone over to it
        told = " and ".join(map(str, splits))
        return RestoreFromStore(f"live ranks hold parts of unlike splits, of {told} parts")
    known = sorted({each.part for each in holding}) or [""]
    chosen: dict[str, CopyFromPeer] = {}
    for part in known:
        found = choose([each if each.part == part else replace(each, step=None) for each in heard])
        if isinstance(found, RestoreFromStore):
            return found
        chosen[part] = found
    if apart := {each.step for each in chosen.values()} - {newest}:
        return RestoreFromStore(f"parts of the state are after step {newest}, and {min(apart)}")
    wanted = splits[0] if splits else 1
    if len(known) != wanted:
        return RestoreFromStore(f"live ranks hold {len(known)} of the {wanted} parts of the state")
    return chosen


def can_commit(save: str, in_flight: Iterable[SaveInFlight]) -> bool:
    """Whether a save can still end: rank 0 of its group is left to commit it, and all whose part is not written yet."""
    found = [each for each in in_flight if each.save == save]
    left = {each.rank for each in found}
    return any(each.missing is not None and left.issuperset(each.missing) for each in found)


def overlaps(first: Boxes, second: Boxes) -> bool:
    """Whether two parts of a state have any number in common."""
    for name, (offset, shape) in first.items():
        if name not in second:
            continue
        other, extent = second[name]
        low = [max(a, b) for a, b in zip(offset, other, strict=True)]
        ends = zip(offset, shape, other, extent, strict=True)
        high = [min(a + n, b + m) for a, n, b, m in ends]
        if all(h > lo for lo, h in zip(low, high, strict=True)):
            return True
    return False


def newest_orders(orders: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The controller's newest orders to any of the ranks."""
    return max(orders, key=_age)


def _age(orders: Mapping[str, Any]) -> tuple[int, int]:
    return orders.get("epoch", 0), orders.get("order", 0)


def _differing(first: Mapping[str, str], second: Mapping[str, str]) -> list[str]:
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]

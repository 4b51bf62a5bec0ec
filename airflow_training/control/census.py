"""How many instances of each role are in which condition: one pass, then only sums.

Everything that asks "how many" asks here, so that a thousand instances are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias

from airflow_training.control.model import InstanceEntry

__all__ = ["Census", "HeadCountKey", "HeadCounts"]


class HeadCountKey(NamedTuple):
    """What instances that count together have in common."""

    role: str
    retired: bool
    joining: bool
    state: str
    final: bool
    desired: bool
    released: bool
    was_running: bool
    address_live: bool
    port_open: bool
    ready: bool


Census = Mapping[str, tuple[tuple[HeadCountKey, int], ...]]
"""Role -> groups of instances that are alike, with their number; without those that do not count: retired, or yet to join."""


_Head: TypeAlias = tuple[str, bool, bool, str, bool, bool, bool, bool, bool, bool, bool]
"""The fields of a `HeadCountKey`, in a plain tuple: it is made of every instance in each decision."""


def _head(entry: InstanceEntry) -> _Head:
    phase, readiness = entry.phase, entry.phase.readiness
    return (
        entry.key.role,
        entry.retired,
        entry.joining,
        entry.state,
        phase.final,
        phase.desired,
        phase.released,
        entry.was_running,
        readiness.address_live,
        readiness.port_open,
        readiness.ready,
    )


class HeadCounts:
    """How many instances have which head, kept up to date while some of them change."""

    def __init__(self, instances: Iterable[InstanceEntry]) -> None:
        self._numbers = Counter(map(_head, instances))
        self._census: Census | None = None

    def replace(self, old: InstanceEntry | None, new: InstanceEntry) -> None:
        """Count an instance as it is now instead of as it was; None: it was not there."""
        if old is not None:
            self._numbers[_head(old)] -= 1
        self._numbers[_head(new)] += 1
        self._census = None

    def census(self) -> Census:
        """Return the groups of all roles."""
        if self._census is None:
            self._census = self._grouped()
        return self._census

    def _grouped(self) -> Census:
        found: dict[str, list[tuple[HeadCountKey, int]]] = {}
        for values, number in self._numbers.items():
            head = HeadCountKey(*values)
            if number and not (head.retired or head.joining):
                found.setdefault(head.role, []).append((head, number))
        return {role: tuple(groups) for role, groups in found.items()}

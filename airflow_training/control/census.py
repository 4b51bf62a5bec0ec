"""How many instances of each role are in which condition: one pass, then only sums.

Everything that asks "how many" asks here, so that a thousand instances are counted once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from typing import NamedTuple

from airflow_training.control.model import InstanceEntry, InstanceKey

__all__ = ["Census", "Head", "census"]


class Head(NamedTuple):
    """What instances that count together have in common."""

    role: str
    retired: bool
    joining: bool
    state: str
    final: bool
    wanted: bool
    released: bool
    was_running: bool
    address_live: bool
    port_open: bool
    ready: bool


Census = Mapping[str, tuple[tuple[Head, int], ...]]
"""Role -> groups of instances that are alike, with their number; without those that do not count: retired, or yet to join."""

_head = attrgetter(*Head._fields)


def census(instances: Mapping[InstanceKey, InstanceEntry]) -> Census:
    """Return the groups of all roles."""
    found: dict[str, list[tuple[Head, int]]] = {}
    for values, number in Counter(map(_head, instances.values())).items():
        head = Head(*values)
        if not (head.retired or head.joining):
            found.setdefault(head.role, []).append((head, number))
    return {role: tuple(groups) for role, groups in found.items()}

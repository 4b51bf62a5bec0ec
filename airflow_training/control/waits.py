"""What a role, or a whole job, waits for: what most of its instances do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from airflow_training.control import reasons
from airflow_training.control.model import InstanceEntry

__all__ = ["WAITING_STATES", "Wait", "wait_of"]

WAITING_STATES = frozenset({"Pending", "Waiting", "Starting", "Restarting"})
"""Of roles and jobs: in these, what their instances wait for is what they wait for."""
_ON_THE_WAY = frozenset({"", reasons.CREATING, reasons.RELEASED, reasons.RESTARTING})


class Wait(NamedTuple):
    reason: str
    message: str


def wait_of(members: Sequence[InstanceEntry]) -> Wait | None:
    """Return the most frequent reason for which they wait, the first one of equals; None: they do not.

    In the words of the first instance, with how many it is about where it is not all that there are.
    """
    expected = [each for each in members if not (each.final or each.joining or each.retired)]
    waiting = [each for each in expected if _waits(each)]
    if not waiting:
        return None
    ((reason, number),) = Counter(each.reason for each in waiting).most_common(1)
    message = next(each.message for each in waiting if each.reason == reason)
    if number < len(expected):
        message = f"{number} of {len(expected)} instances" + (f": {message}" if message else "")
    return Wait(reason, message)


def _waits(entry: InstanceEntry) -> bool:
    held_back = entry.reason == reasons.WAITING_FOR_OLD_INSTANCE
    return held_back or (entry.state == "pending" and entry.reason not in _ON_THE_WAY)

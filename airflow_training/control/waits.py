"""What a role, or a whole job, waits for: what most of its instances do; and when that is told. Pure."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase, AnnouncedWait, InstanceEntry

__all__ = [
    "NUMBERS_SECONDS",
    "WAITING_STATES",
    "Wait",
    "differ_in_numbers",
    "tell_waits",
    "wait_of",
    "waits_since",
]

_LASTS_SECONDS = 10.0
"""How long an instance may be without a place before that is told: most have one in a second."""
NUMBERS_SECONDS = 60.0
"""How often words are told in which only numbers are others, such as the place in a queue."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:m|[kMGTPE]i?|Ki)?\b|\d+")
"""With the unit of an amount: `1` and `500m` are numbers of the same thing."""

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


def waits_since(entry: InstanceEntry) -> float | None:
    """Return since when an instance is asked for that something keeps from running; None: nothing does."""
    if entry.phase.refused_since is not None:
        return entry.phase.refused_since
    waits = entry.state == "pending" and entry.reason not in _ON_THE_WAY
    return entry.phase.desired_since if waits and isinstance(entry.phase, ActivePhase) else None


# events ------------------------------------------------------------------------------------------
def tell_waits(draft: Draft) -> None:
    """Tell of each role once why its instances find no place, and again as the words change."""
    said: defaultdict[str, Counter[Wait]] = defaultdict(Counter)
    for key, seen in draft.current.items():
        if seen.state != "pending" or not seen.message:
            continue
        if seen.scheduled and seen.reason not in draft.known_reasons:
            continue  # it is on its way
        if seen.reason == reasons.NEVER_FITS:
            continue  # that is told at once
        entry = draft.instances[key]
        if not isinstance(entry.phase, ActivePhase):
            continue
        lasts_at = entry.phase.desired_since + _LASTS_SECONDS
        if draft.now < lasts_at:
            draft.wake(lasts_at)
            continue
        said[entry.role][Wait(seen.reason or reasons.UNSCHEDULABLE, seen.message)] += 1
    for name, role in draft.roles.items():
        if name in said:
            ((wait, _),) = said[name].most_common(1)
            _record_wait(draft, name, wait, role.announced_wait)
        elif role.announced_wait is not None:
            draft.set_role(name, announced_wait=None)


def _record_wait(draft: Draft, role: str, wait: Wait, announced: AnnouncedWait | None) -> None:
    if announced is not None:
        before = Wait(announced.reason, announced.message)
        if wait == before:
            return
        due_at = announced.at + NUMBERS_SECONDS
        same = differ_in_numbers(wait, before) or _have_one_cause(draft, wait, before)
        if same and draft.now < due_at:
            draft.wake(due_at)
            return
    draft.set_role(
        role, announced_wait=AnnouncedWait(reason=wait.reason, message=wait.message, at=draft.now)
    )
    draft.record_event(wait.reason, wait.message, role=role)


def _have_one_cause(draft: Draft, one: Wait, other: Wait) -> bool:
    """Return whether two reasons are one problem, as a pull that failed and the pause until the next."""
    known = [draft.known_reasons.get(each.reason) for each in (one, other)]
    causes = {each.cause if each is not None else "" for each in known}
    return len(causes) == 1 and causes != {""}


def differ_in_numbers(one: Wait, other: Wait) -> bool:
    """Return whether two say the same, but for numbers."""
    return _shape(one) == _shape(other)


def _shape(wait: Wait) -> Wait:
    return Wait(wait.reason, _NUMBER.sub("#", wait.message))

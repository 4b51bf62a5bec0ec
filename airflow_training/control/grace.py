"""Whether what was told to end had to be killed: it ignored SIGTERM for all of its grace. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from signal import SIGKILL

from airflow_training.control import reasons
from airflow_training.control.model import InstanceEntry
from airflow_training.control.observations import Observation
from airflow_training.documents.text import counted

__all__ = ["killed_after_grace", "killed_note", "told_by_agent"]

_ALMOST_SECONDS = 2.0
"""How much less than its grace it may seem to have had: clocks differ, and engines tell whole seconds."""
_WORDS = "of SIGTERM, and was killed"
"""Of agents too, which know it of children as well."""


def told_by_agent(seen: Observation) -> str:
    """The agent's own words that it had to kill, with the grace that there was; "" for none."""
    return seen.message if _WORDS in seen.message else ""


def killed_after_grace(
    entry: InstanceEntry, seen: Observation, *, grace_seconds: float, now: float
) -> str:
    """That an instance that was told to end had to be killed, in words; "" where it ended in time.

    `entry`: as it is ending, since its last transition. Without an agent's word signal and time tell: whoever
    ends it sends nothing but TERM before its grace is over. One that never ran has ignored nothing, whatever
    exit code its engine makes up for it.
    """
    if told := told_by_agent(seen):
        return told
    killed = seen.signal == SIGKILL or seen.exit_code == 128 + SIGKILL
    if not killed or not entry.was_running or seen.reason == reasons.OUT_OF_MEMORY:
        return ""
    passed = (seen.finished_at or now) - entry.last_transition_at
    least = grace_seconds - min(_ALMOST_SECONDS, grace_seconds / 2)
    if entry.state != "terminating" or grace_seconds <= 0 or passed < least:
        return ""
    return f"did not end within {grace_seconds:g} s {_WORDS}"


def killed_note(entries: Iterable[InstanceEntry]) -> str:
    """How many instances of a stopped job had to be killed, in words; "" for none."""
    killed = sum(each.state == "stopped" and _WORDS in each.message for each in entries)
    return (
        f"{counted(killed, 'instance')} did not end in time after SIGTERM, and had to be killed"
        if killed
        else ""
    )

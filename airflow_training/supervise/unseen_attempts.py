"""Attempts that ended between two decisions: their times, for the usage of the run. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from airflow_training.control.model import InstanceEntry, Ledger
from airflow_training.control.observations import Observation

__all__ = ["with_unseen_attempts"]


def with_unseen_attempts(old: Ledger, new: Ledger, seen: Collection[Observation]) -> Ledger:
    """Return `old` with the times of attempts that `new` has already replaced.

    A decision that sees that an attempt is over goes straight on to the next one, so no ledger ever
    holds when it ended, nor, where it was short, when it began. What counts is what its agent wrote
    down, not when somebody looked: for a while there may have been nobody.
    """
    replaced = {
        key: entry
        for key, entry in old.instances.items()
        if entry.finished_at is None
        and (after := new.instances.get(key)) is not None
        and after is not entry
        and _attempt(after) != _attempt(entry)
    }
    if not replaced:
        return old
    known = {(each.role, each.index, *_attempt(each)): each for each in seen}
    filled = dict(old.instances)
    for key, entry in replaced.items():
        life = known.get((*key, *_attempt(entry)))
        if life is not None and life.started_at is not None:
            filled[key] = dataclasses.replace(
                entry, started_at=life.started_at, finished_at=life.finished_at
            )
    return dataclasses.replace(old, instances=filled)


def _attempt(each: InstanceEntry | Observation) -> tuple[int, int, int]:
    return each.epoch, each.job_attempt, each.attempt

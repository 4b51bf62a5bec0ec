"""An instance that trains with others gets nowhere while one of them does not run: then it does not hang. Pure.

Its own agent decides that it hangs, also while nobody else is there. So it is told that it waits, for a few
minutes at a time: what nobody repeats is over by itself.
"""

from __future__ import annotations

from airflow_training.control.actions import AwaitPeers
from airflow_training.control.clocks import STALL, STANDINGS, standing_of
from airflow_training.control.draft import Draft
from airflow_training.control.model import InstanceEntry
from airflow_training.control.recovery import is_one_group
from airflow_training.control.running_time import comes_later, trains
from airflow_training.documents.instances import InstanceKey
from airflow_training.frameworks.ranks import ranked_roles

__all__ = ["EXCUSE_SECONDS", "await_peers", "missing_peer"]

EXCUSE_SECONDS = 120.0
"""How often it is repeated; it holds for twice as long."""


def await_peers(draft: Draft) -> None:
    """Tell the agents of instances that run that they wait for those that do not."""
    if draft.spec.checkpoint is None or not _train_together(draft):
        return
    missing = _missing(draft)
    if not missing:
        return
    number = int(draft.now // EXCUSE_SECONDS)
    for entry in draft.instances.values():
        seen = draft.objects.get(entry.uid)
        if (
            seen is None
            or not entry.desired
            or entry.state not in STALL.counts
            or not seen.in_place
        ):
            continue
        if any(key != entry.key for key in missing):
            draft.actions.append(
                AwaitPeers(key=entry.key, uid=seen.uid, seconds=2 * EXCUSE_SECONDS, number=number)
            )
            draft.wake((number + 1) * EXCUSE_SECONDS)


def missing_peer(draft: Draft, entry: InstanceEntry) -> str:
    """Return for whom an instance waits, and why that does not run; empty: all run that it trains with."""
    if not _train_together(draft) or not trains(draft.spec, entry.role):
        return ""
    found = (f"{key} was {words}" for key, words in _missing(draft).items() if key != entry.key)
    return next(found, "")


def _train_together(draft: Draft) -> bool:
    """Return whether instances need each other: for their checkpoints, or as each knows where the others are."""
    spec = draft.spec
    if spec.instances <= 1:
        return False
    environments = [spec.role(name).env.values() for name in ranked_roles(spec)]
    return is_one_group(spec) or any("addresses(" in text for env in environments for text in env)


def _missing(draft: Draft) -> dict[InstanceKey, str]:
    """Return the instances that are to train now and do not run, and what they do instead."""
    spec = draft.spec
    now = {
        role.name for role in spec.roles if trains(spec, role.name) and not comes_later(draft, role)
    }
    return {
        entry.key: STANDINGS[
            standing_of(entry, draft.current.get(entry.key), job_state=draft.job.state)
        ]
        for entry in draft.instances.values()
        if entry.role in now
        and entry.state not in STALL.counts
        and not (entry.final or entry.retired or entry.joining)
    }

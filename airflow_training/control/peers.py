"""An instance that trains with others gets nowhere while one of them does not run: then it does not hang. Pure.

Its own agent decides that it hangs, also while nobody else is there. So it is told that it waits, for a few
minutes at a time: what nobody repeats is over by itself. Once all run it is told that it waits no more.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from airflow_training.control.actions import AwaitPeers
from airflow_training.control.clocks import STALL, STANDINGS, standing_of
from airflow_training.control.draft import Draft
from airflow_training.control.model import ActivePhase, InstanceEntry, PeerWait
from airflow_training.control.recovery import is_one_group
from airflow_training.control.running_time import comes_later, trains
from airflow_training.documents.instances import InstanceKey
from airflow_training.frameworks.ranks import ranked_roles

__all__ = ["EXCUSE_SECONDS", "HOLDS_SECONDS", "await_peers", "missing_peer"]

EXCUSE_SECONDS = 120.0
"""How often it is repeated."""
HOLDS_SECONDS = 2 * EXCUSE_SECONDS
"""How long it holds."""


def await_peers(draft: Draft) -> None:
    """Tell the agents of instances that run that they wait for those that do not, and when that is over."""
    if draft.spec.checkpoint is None:
        return
    missing = _missing(draft) if _train_together(draft) else {}
    told = any(_told(entry) is not None for entry in draft.instances.values())
    if not missing and not told:
        return
    beginners = _beginners(draft) if told and not missing else {}
    for entry in list(draft.instances.values()):
        seen = draft.objects.get(entry.uid)
        if seen is None or entry.state not in STALL.counts or not seen.in_place:
            continue
        phase = entry.phase
        if isinstance(phase, ActivePhase):
            wait = _peer_wait(draft, entry, phase.peer_wait, missing, beginners)
            draft.put(replace(entry, phase=replace(phase, peer_wait=wait)))
            _order(draft, entry, wait)


def _order(draft: Draft, entry: InstanceEntry, wait: PeerWait | None) -> None:
    if wait is None or draft.now >= wait.at + HOLDS_SECONDS:
        return  # what it was told last is over by itself
    seconds = HOLDS_SECONDS if wait.waits else 0.0
    order = AwaitPeers(key=entry.key, uid=entry.uid, seconds=seconds, number=wait.number)
    draft.actions.append(order)
    if draft.now < wait.at + EXCUSE_SECONDS:
        draft.wake(wait.at + EXCUSE_SECONDS)


def _peer_wait(
    draft: Draft,
    entry: InstanceEntry,
    told: PeerWait | None,
    missing: Collection[InstanceKey],
    beginners: Mapping[InstanceKey, float],
) -> PeerWait | None:
    """Return what its agent is to know now, after what it was told last."""
    now = draft.now
    if any(key != entry.key for key in missing):
        if told is None or not told.waits:
            return PeerWait(number=0 if told is None else told.number + 1, since=now, at=now)
        if now < told.at + EXCUSE_SECONDS:
            return told
        return replace(told, number=told.number + 1, at=now)
    if told is None or not told.waits:
        return told
    if any(key != entry.key and at >= told.since for key, at in beginners.items()):
        return told
    return PeerWait(number=told.number + 1, since=now, at=now, waits=False)


def _told(entry: InstanceEntry) -> PeerWait | None:
    return entry.phase.peer_wait if isinstance(entry.phase, ActivePhase) else None


def _beginners(draft: Draft) -> Mapping[InstanceKey, float]:
    """Return who was started again and has still to load what the others have, and since when it runs.

    It reports no step yet. Those that wait for it do so until it does, or what they were told is over.
    """
    return {
        entry.key: entry.last_transition_at
        for entry in draft.instances.values()
        if entry.attempt > 0
        and entry.state in STALL.counts
        and trains(draft.spec, entry.role)
        and (seen := draft.objects.get(entry.uid)) is not None
        and seen.progress is None
    }


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

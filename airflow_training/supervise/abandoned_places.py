"""Places in the queue that runs hold although nobody drives them and nothing of them lives: others may have them."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from typing import Any

from airflow_training.admission.queueing import QueueTurn
from airflow_training.control.model import Event
from airflow_training.control.transitions import ENDED
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.port import Runtime, Snapshot
from airflow_training.state.queue import SlotHolder
from airflow_training.state.store import Store
from airflow_training.supervise.owners import is_provably_dead

__all__ = ["take_turn"]

log = logging.getLogger(__name__)

_UNDRIVEN_SECONDS = 60.0
"""Who drove a run may be elsewhere, or start again: so long nobody has to have come back to it."""
_GIVEN_BACK = (
    "nobody drives it and nothing of it is alive: it waits in the queue again, and others may start"
)


async def take_turn(turn: QueueTurn) -> bool:
    """Take a run off the queue if it may start now, also in the place of one that nobody drives."""
    return await turn.try_start() or (
        await _free_places(turn.store, turn.runtime) and await turn.try_start()
    )


async def _free_places(store: Store, runtime: Runtime) -> bool:
    """Have runs whose drivers are dead, and of which nothing lives, wait again; return whether there were any.

    Only of a machine that the queue shares out: what is elsewhere may live without being seen from here.
    """
    if not runtime.capabilities.shares_machine:
        return False
    freed = False
    for holder in await asyncio.to_thread(store.queue.holders):
        if holder.runtime != runtime.name or not await asyncio.to_thread(
            _is_undriven, holder, store
        ):
            continue
        record = await asyncio.to_thread(store.run, holder.uid)
        if record is None or await _lives(record.ref(), runtime):
            continue
        if await asyncio.to_thread(store.queue.give_back, holder):
            freed = True
            log.warning("run %s: %s", record.key.run_id, _GIVEN_BACK)
            event = Event(
                at=holder.now,
                reason="PlaceGivenBack",
                level="warning",
                message=_GIVEN_BACK,
                data={"generation": holder.generation},
            )
            await asyncio.to_thread(store.add_event_once, holder.uid, event)
    return freed


def _is_undriven(holder: SlotHolder, store: Store) -> bool:
    """Whether who drove a run is seen to be dead, or nobody has come back to it for long."""
    if holder.owner and is_provably_dead(holder.owner):
        return True
    newest = max(holder.expires_at, holder.started_at)
    if newest > holder.now - _UNDRIVEN_SECONDS:
        return False
    return store.ledger(holder.uid).job.last_transition_at <= holder.now - _UNDRIVEN_SECONDS


async def _lives(run: RunRef, runtime: Runtime) -> bool:
    changes: Any = runtime.watch(run)  # a generator, whose end frees what it watches by
    async with aclosing(changes):
        async for change in changes:
            if isinstance(change, Snapshot):
                return any(each.state not in ENDED or each.lingers for each in change.instances)
    return True

"""What role tasks and sensors have in common: they follow a run and end when nobody drives it.

They write no instances. Only a role task that was cleared after the end, when `reconcile` is not
cleared with it, lends the run a loop.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from airflow_training.state.store import RunState, Store
from airflow_training.supervise.hub import get_hub
from airflow_training.triggers.airflow_state import OVER, DagRunGoneError
from airflow_training.triggers.base import GroupTrigger, lease_is_stale
from airflow_training.triggers.hosting import Host

__all__ = ["FollowingTrigger"]

_ASK_SECONDS = 5.0
"""How often Airflow is asked about `reconcile` while nobody holds the lease."""
_ASKED_TWICE = 2
"""A loop that is just bringing the run to zero gets the time to renew its lease."""


class FollowingTrigger(GroupTrigger):
    """A trigger that waits for something in the run that `reconcile` drives."""

    def __init__(self, **group: Any) -> None:
        super().__init__(**group)
        self._host: Host | None = None
        self._may_host = False

    @asynccontextmanager
    async def following(self, store: Store, uid: str) -> AsyncIterator[AsyncIterator[Any]]:
        """Give the run's states as they change: RunState, None for no run.

        A text instead of a state says that nobody drives the run any more, and why.
        """
        async with get_hub(store).subscription(uid) as sub:
            yield self._states(store, uid, sub)

    async def _states(self, store: Store, uid: str, sub: Any) -> AsyncIterator[Any]:
        state: RunState | None = None
        alone = 0
        while True:
            if await sub.changed_within(_ASK_SECONDS):
                state, alone = await sub.next(), 0
                yield state
                continue  # somebody is at work
            if state is None or (state.ledger.job.is_over and not self._may_host):
                continue
            now = await self.clock(store)
            why = await self._abandoned() if lease_is_stale(state, now=now) else None
            alone = alone + 1 if why else 0
            if why and alone >= _ASKED_TWICE:
                if not self._may_host:
                    yield why
                elif self._host is None:
                    self.log.info("%s; this task drives the run", why)
                    self._host = Host(store, uid)

    async def clock(self, store: Store) -> float:
        """Return the store's time."""
        return await get_hub(store).now()

    async def _abandoned(self) -> str | None:
        """Return why nobody will drive the run any more, None while somebody may."""
        try:
            states = await self.ask(self.reconcile_id)
        except DagRunGoneError:
            return "the DAG run was deleted"
        except ConnectionError:
            return None
        state = states.at(self.reconcile_id, self.group_index)
        return f"nobody drives the run: reconcile is {state}" if state in OVER else None

    async def on_kill(self) -> None:
        """Stop the job when this task was taken out of the run.

        Cleared or moved, it has a future; marked successful, only the watching ends.
        """
        state = await self.ended_in_airflow()
        if state in (None, "success"):
            return
        why = f"{self.ti.task_id} was set to {state}"
        self.log.warning("stopping the job: %s", why)
        if self._host is not None:
            self._host.keep()
        store, uid = await self.open()
        await self.request(store, uid, "stop", reason=why)

    async def cleanup(self) -> None:
        """Give back what this trigger holds; never the training."""
        if self._host is not None:
            self._host.stop()

"""What the triggers of a group share: whose run it is, the store, and what Airflow says."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from airflow.triggers.base import BaseTrigger

from airflow_training.state.store import RunState, Store
from airflow_training.triggers.access import open_store, run_key, task_name
from airflow_training.triggers.airflow_state import ACTIVE, DagRunGone, states_of

__all__ = ["NO_RUN", "GroupTrigger", "lease_is_stale"]

NO_RUN = "the run is not in the store: `plan` did not create it, or it was pruned"


def lease_is_stale(state: RunState, *, now: float) -> bool:
    """Return whether nobody drives the run at this moment (`now`: the store's clock)."""
    return state.lease is None or state.lease.expires_at < now


class GroupTrigger(BaseTrigger):
    """A trigger that belongs to the run of its task group.

    Nothing but the group's name travels with it: the run follows from the task instance.
    """

    def __init__(self, *, group_id: str = "", map_index: int | None = None) -> None:
        """`map_index`: of the group, where the task's own index counts something else."""
        super().__init__()
        self.group_id = group_id
        self.map_index = map_index

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments; rebuilt from this in every triggerer."""
        cls = type(self)
        return f"{cls.__module__}.{cls.__qualname__}", self.arguments()

    def arguments(self) -> dict[str, Any]:
        """Return what the constructor needs."""
        arguments: dict[str, Any] = {"group_id": self.group_id}
        if self.map_index is not None:
            arguments["map_index"] = self.map_index
        return arguments

    @property
    def by(self) -> str:
        """Return who asks, as requests record it: task and try."""
        ti = self.task_instance
        return f"{ti.task_id} try {ti.try_number}" if ti is not None else ""

    async def open(self) -> tuple[Store, str]:
        """Return the store and the uid of the run."""
        return await asyncio.to_thread(self._open)

    def _open(self) -> tuple[Store, str]:
        store = open_store()
        key = run_key(store, self.task_instance, group_id=self.group_id, map_index=self.map_index)
        return store, key.uid

    async def ask(self, *task_ids: str) -> Mapping[str, str | None]:
        """Return the states of tasks, and of this one, as Airflow has them; DagRunGone."""
        return await states_of(self.task_instance, task_ids)

    async def taken_away(self) -> str | None:
        """Return why this task is really over for Airflow, None while it still has a future.

        A trigger is also cancelled when a stalled triggerer lost it, or when the task was
        cleared: then the task lives on and nothing may be stopped.
        """
        try:
            states = await self.ask()
        except DagRunGone:
            return "the DAG run was deleted"
        except ConnectionError as error:
            self.log.warning(
                "Airflow did not tell the task's state, so nothing is stopped: %s", error
            )
            return None
        ti = self.task_instance
        assert ti is not None  # noqa: S101 - the triggerer sets it
        if ti.task_id not in states:
            return f"{ti.task_id} was deleted"
        state = states[ti.task_id]
        return None if state in ACTIVE else f"{ti.task_id} was set to {state}"

    @property
    def reconcile_id(self) -> str:
        return task_name(self.group_id, "reconcile")

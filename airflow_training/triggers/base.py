"""What the triggers of a group share: whose run it is, the store, and what Airflow says."""

from __future__ import annotations

import asyncio
from typing import Any

from airflow.triggers.base import BaseTrigger, TaskSuccessEvent, TriggerEvent

from airflow_training.control.model import RequestKind
from airflow_training.operators.deferred import task_name
from airflow_training.state.store import RunState, Store
from airflow_training.supervise.hub import get_hub
from airflow_training.triggers.access import open_store, run_key
from airflow_training.triggers.airflow_state import (
    OVER,
    DagRunGoneError,
    TaskStates,
    fetch_task_states,
)

__all__ = ["NO_RUN", "GroupTrigger", "lease_is_stale"]

_FRESH_SECONDS = 15.0
"""A first try that begins so soon after `plan` was not forgotten: Airflow need not be asked."""
NO_RUN = (
    "the run is not in the store: `plan` did not create it (its log says why), or it was pruned"
)


def lease_is_stale(state: RunState, *, now: float) -> bool:
    """Return whether nobody drives the run at this moment (`now`: the store's clock)."""
    return state.lease is None or state.lease.expires_at < now


class GroupTrigger(BaseTrigger):
    """A trigger that belongs to the run of its task group.

    Nothing but the group's name travels with it: the run follows from the task instance.
    """

    def __init__(
        self, *, group_id: str = "", map_index: int | None = None, success_on_worker: bool = False
    ) -> None:
        """`map_index`: of the group, where the task's own index counts something else.

        `success_on_worker`: end the task on a worker, where its success callbacks run.
        """
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own is not typed
        self.group_id = group_id
        self.map_index = map_index
        self.success_on_worker = success_on_worker

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return class path and arguments; rebuilt from this in every triggerer."""
        cls = type(self)
        return f"{cls.__module__}.{cls.__qualname__}", self.arguments()

    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        arguments: dict[str, Any] = {"group_id": self.group_id}
        if self.map_index is not None:
            arguments["map_index"] = self.map_index
        if self.success_on_worker:
            arguments["success_on_worker"] = True
        return arguments

    @property
    def ti(self) -> Any:
        """Return the task instance; the triggerer sets it before anything runs."""
        if self.task_instance is None:
            raise RuntimeError("a training trigger runs only for a task")
        return self.task_instance

    @property
    def group_index(self) -> int:
        """Return the map index of the task group: the task's own, unless another was given."""
        return int(self.ti.map_index) if self.map_index is None else self.map_index

    @property
    def reconcile_id(self) -> str:
        return task_name(self.group_id, "reconcile")

    def success(self, value: Any = None) -> TriggerEvent:
        """Return the event that ends the task successfully, with its XCom."""
        if self.success_on_worker:
            return _for_worker({"value": value})
        return TaskSuccessEvent(xcoms=None if value is None else {"return_value": value})

    def failure(self, message: str, value: Any = None) -> TriggerEvent:
        """Return the event with which a worker fails the task and says why, with its XCom."""
        told = {"message": message}
        return _for_worker(told if value is None else {**told, "value": value})

    async def open(self) -> tuple[Store, str]:
        """Return the store and the uid of the run."""
        return await asyncio.to_thread(self._open)

    def _open(self) -> tuple[Store, str]:
        store = open_store()
        key = run_key(store, self.ti, group_id=self.group_id, map_index=self.map_index)
        return store, key.uid

    async def ask(self, *task_ids: str) -> TaskStates:
        """Return the states of tasks, and of this one, as Airflow has them; raises DagRunGoneError."""
        return await fetch_task_states(self.ti, task_ids)

    async def request(
        self, store: Store, uid: str, kind: RequestKind, *, role: str = "", reason: str = ""
    ) -> None:
        """Ask the holder of the lease for something, in this task's name."""
        by = f"{self.ti.task_id} try {self.ti.try_number}"
        await asyncio.to_thread(store.add_request, uid, kind, role=role, reason=reason, by=by)
        get_hub(store).notify(uid)

    async def ended_before_start(self, state: RunState) -> str | None:
        """Return the state in which Airflow ended this task before a triggerer took it up.

        Airflow's triggerer stands still for seconds when it is first asked anything, so a task
        whose turn has just come is not asked about.
        """
        age = await get_hub(open_store()).now() - state.record.submitted_at
        if self.ti.try_number == 1 and age < _FRESH_SECONDS:
            return None
        return await self.ended_in_airflow()

    async def ended_in_airflow(self) -> str | None:
        """Return the state in which this task is over for Airflow, None while it has a future.

        A trigger is also cancelled when a stalled triggerer lost it, or when the task was
        cleared: then the task lives on, and nothing may be stopped.
        """
        try:
            states = await self.ask()
        except DagRunGoneError:
            return "deleted"
        except ConnectionError as error:
            self.log.warning("Airflow did not tell the task's state; nothing is stopped: %s", error)
            return None
        ti = self.ti
        if not states.has(ti.task_id, ti.map_index):
            return "deleted"
        state = states.at(ti.task_id, ti.map_index)
        return state if state in OVER else None


def _for_worker(payload: dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]  # Airflow's own

"""Hosts the loop of a run while `reconcile` is deferred. Decides nothing about the training."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from airflow.triggers.base import TriggerEvent

from airflow_training.control.model import TERMINAL_JOB_STATES
from airflow_training.control.rollup import checkpoint_reference
from airflow_training.control.root_cause import outcome_text
from airflow_training.operators.deferred import task_name
from airflow_training.state.store import RunState, Store
from airflow_training.supervise.hub import get_hub
from airflow_training.triggers.airflow_state import LOST, DagRunGoneError, TaskStates
from airflow_training.triggers.base import NO_RUN, GroupTrigger
from airflow_training.triggers.epochs import begin_try
from airflow_training.triggers.event_log import EventLogger
from airflow_training.triggers.hosting import Host

__all__ = ["ReconcileTrigger"]

_WATCH_SECONDS = 10.0


class ReconcileTrigger(GroupTrigger):
    """Runs the loop, tells the run's story, and looks after the other tasks of the group."""

    def __init__(
        self, *, watched: Sequence[str] = (), mapped_roles: str = "", **group: Any
    ) -> None:
        """`watched`: ids of the sensors and role tasks of the group.

        `mapped_roles`: id of the one task that is mapped over the roles, where there is one.
        """
        super().__init__(**group)
        self.watched = list(watched)
        self.mapped_roles = mapped_roles
        self._host: Host | None = None

    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {
            **super().arguments(),
            "watched": self.watched,
            "mapped_roles": self.mapped_roles,
        }

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield one event: success, or the failure with its message."""
        store, uid = await self.open()
        state = (await asyncio.to_thread(store.read, [uid])).get(uid)
        if state is None:
            yield self.failure(NO_RUN)
            return
        over = await self.ended_before_start(state)
        if over is not None:
            yield await self._end_unbegun(store, uid, f"{self.ti.task_id} is {over}")
            return
        await asyncio.to_thread(begin_try, store, state, self.ti)
        self._host = Host(store, uid)
        watch = asyncio.create_task(self._watch_group(store, uid))
        try:
            await self._tell_story(store, uid, self._host)
        finally:
            watch.cancel()
        job_state = self._host.task.result()
        ledger = await asyncio.to_thread(store.ledger, uid)
        value = {"run": uid, "state": job_state, "checkpoint": checkpoint_reference(ledger)}
        if job_state == "Succeeded":
            yield self.success(value)
        else:
            why = outcome_text(
                state=job_state, reason=ledger.job.reason, message=ledger.job.message
            )
            yield self.failure(f"the job {job_state.lower()} ({why})", value)

    async def _end_unbegun(self, store: Store, uid: str, why: str) -> TriggerEvent:
        """Bring the run to its end without starting anything.

        No triggerer took the task up in time: a DAG-run timeout ends tasks and leaves their
        triggers, and nobody else would end a run that waits in the queue.
        """
        self.log.warning("not taken up any more: %s", why)
        await self.request(store, uid, "stop", reason=why)
        Host(store, uid).keep()
        return self.failure(why)

    async def _tell_story(self, store: Store, uid: str, host: Host) -> None:
        """Return when the loop has ended and everything was told; raises what the loop raised."""
        story = EventLogger(store, uid, tell=self.log.log)
        async with get_hub(store).subscription(uid) as sub:
            while not host.task.done():
                fresh = asyncio.ensure_future(sub.next())
                try:
                    await asyncio.wait({fresh, host.task}, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    fresh.cancel()
                await story.catch_up()
        await story.catch_up()

    # the other tasks of the group ----------------------------------------------------------------
    async def _watch_group(self, store: Store, uid: str) -> None:
        """Stop the job when one of its tasks was taken away; start roles that were skipped over."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            try:
                await self._look_after(store, uid)
            except Exception:
                self.log.warning("could not look after the group's tasks", exc_info=True)

    async def _look_after(self, store: Store, uid: str) -> None:
        try:
            states = await self.ask(*self.watched, *filter(None, [self.mapped_roles]))
        except DagRunGoneError:
            await self.request(store, uid, "stop", reason="the DAG run was deleted")
            return
        state = (await asyncio.to_thread(store.read, [uid])).get(uid)
        if state is None or state.ledger.job.state in TERMINAL_JOB_STATES:
            return
        for name, task_state in self._states_of_tasks(state, states).items():
            if task_state in LOST:
                await self.request(store, uid, "stop", reason=f"{name} is {task_state}")
                return
        for role, task_state in self._states_of_roles(state, states).items():
            # marked successful before it could ask itself: only its watching was taken away
            if task_state == "success" and not state.ledger.roles[role].activated:
                await self.request(store, uid, "activate", role=role)

    def _states_of_tasks(self, state: RunState, states: TaskStates) -> Mapping[str, str | None]:
        found = {task_id: states.at(task_id, self.group_index) for task_id in self.watched}
        if self.mapped_roles:
            roles = self._states_of_roles(state, states)
            found.update({f"{self.mapped_roles} {role}": each for role, each in roles.items()})
        return found

    def _states_of_roles(self, state: RunState, states: TaskStates) -> Mapping[str, str | None]:
        if self.mapped_roles:
            return {
                role.name: states.at(self.mapped_roles, number)
                for number, role in enumerate(state.job.roles)
            }
        return {
            role.name: states.at(task_name(self.group_id, f"{folder}.run"), self.group_index)
            for role in state.job.roles
            for folder in (role.name, f"{role.name}_role")
            if task_name(self.group_id, f"{folder}.run") in self.watched
        }

    # the end of the trigger ----------------------------------------------------------------------
    async def on_kill(self) -> None:
        """Stop the job, but only when Airflow confirms that this task is over."""
        state = await self.ended_in_airflow()
        if state is None:
            self.log.info("reconcile has a future elsewhere; the training is left alone")
            return
        why = f"{self.ti.task_id} was set to {state}"
        self.log.warning("stopping the job: %s", why)
        store, uid = await self.open()
        # the loop outlives this trigger: after a DAG-run timeout or a deletion no task comes
        # that would bring the run to zero
        if self._host is not None:
            self._host.keep()
        await self.request(store, uid, "stop", reason=why)

    async def cleanup(self) -> None:
        """Give the loop up; whoever comes next adopts what is alive."""
        if self._host is not None:
            self._host.stop()

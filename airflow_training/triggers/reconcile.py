"""Hosts the loop of a run while `reconcile` is deferred. Decides nothing about the training."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from airflow.triggers.base import TaskSuccessEvent, TriggerEvent

from airflow_training.control.model import TERMINAL_JOB_STATES, Event
from airflow_training.state.store import RunState, Store
from airflow_training.supervise.hub import get_hub
from airflow_training.triggers.airflow_state import DagRunGone
from airflow_training.triggers.base import NO_RUN, GroupTrigger
from airflow_training.triggers.epochs import begin_try
from airflow_training.triggers.hosting import Host
from airflow_training.triggers.story import Story

__all__ = ["ReconcileTrigger"]

_WATCH_SECONDS = 10.0
_LOST = frozenset({"failed", "upstream_failed", "skipped", "removed"})


class ReconcileTrigger(GroupTrigger):
    """Runs the loop, tells the run's story, and looks after the other tasks of the group."""

    def __init__(
        self, *, group_id: str = "", watched: Sequence[str] = (), mapped_roles: str = ""
    ) -> None:
        """`watched`: ids of the sensors and role tasks of the group.

        `mapped_roles`: id of the one task that is mapped over the roles, where there is one.
        """
        super().__init__(group_id=group_id)
        self.watched = list(watched)
        self.mapped_roles = mapped_roles
        self._host: Host | None = None

    def arguments(self) -> dict[str, Any]:
        """Return what the constructor needs."""
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
            yield TriggerEvent({"message": NO_RUN})
            return
        await asyncio.to_thread(begin_try, store, state, self.task_instance)
        self._host = Host(store, uid)
        watch = asyncio.create_task(self._watch_group(store, uid))
        try:
            await self._tell_story(store, uid, self._host)
        finally:
            watch.cancel()
        job_state = self._host.task.result()
        ledger = await asyncio.to_thread(store.ledger, uid)
        if job_state == "Succeeded":
            yield TaskSuccessEvent(xcoms={"return_value": {"run": uid, "state": job_state}})
        else:
            why = ": ".join(filter(None, [ledger.job.reason, ledger.job.message]))
            yield TriggerEvent({"message": f"job {state.record.job} {job_state.lower()} ({why})"})

    async def _tell_story(self, store: Store, uid: str, host: Host) -> None:
        """Return when the loop has ended and everything was told; raises what the loop raised."""
        story = Story(store, uid, tell=self.log.log)
        async with get_hub(store).subscription(uid) as sub:
            while not host.task.done():
                fresh = asyncio.ensure_future(sub.next())
                await asyncio.wait({fresh, host.task}, return_when=asyncio.FIRST_COMPLETED)
                fresh.cancel()
                await story.catch_up()
        await story.catch_up()

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
            states = await self.ask(*self.watched)
        except DagRunGone:
            await self._ask_for(store, uid, "stop", reason="the DAG run was deleted")
            return
        state = (await asyncio.to_thread(store.read, [uid])).get(uid)
        if state is None or state.ledger.job.state in TERMINAL_JOB_STATES:
            return
        for task_id, task_state in states.items():
            if task_id != self.reconcile_id and task_state in _LOST:
                await self._ask_for(store, uid, "stop", reason=f"{task_id} is {task_state}")
                return
        await self._activate_finished(store, state, states)

    async def _activate_finished(self, store: Store, state: RunState, states: Any) -> None:
        """Ask for roles whose task was marked successful before it could ask itself."""
        prefix = f"{self.group_id}." if self.group_id else ""
        for name, role in state.ledger.roles.items():
            if not role.activated and states.get(f"{prefix}{name}.run") == "success":
                await self._ask_for(store, state.record.uid, "activate", role=name)

    async def _ask_for(self, store: Store, uid: str, kind: Any, **request: str) -> None:
        await asyncio.to_thread(store.add_request, uid, kind, by=self.by, **request)
        get_hub(store).poke(uid)

    async def on_kill(self) -> None:
        """Stop the job, but only when Airflow confirms that this task is over."""
        why = await self.taken_away()
        if why is None:
            self.log.info("reconcile goes on elsewhere; the training is left alone")
            return
        store, uid = await self.open()
        self.log.warning("stopping the job: %s", why)
        # the loop outlives this trigger: after a DAG-run timeout or a deletion no task comes
        # that would bring the run to zero
        if self._host is not None:
            self._host.keep()
        await asyncio.to_thread(store.add_events, uid, [_taken(store.now(), why)])
        await self._ask_for(store, uid, "stop", reason=why)

    async def cleanup(self) -> None:
        """Give the loop up; whoever comes next adopts what is alive."""
        if self._host is not None:
            self._host.stop()


def _taken(now: float, why: str) -> Event:
    return Event(at=now, reason="TaskTakenAway", message=why, level="warning")

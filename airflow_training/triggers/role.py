"""Follows one role while its task is deferred: asks for it, tells its story, reports its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import Any

from airflow.triggers.base import (
    BaseTaskEndEvent,
    TaskFailedEvent,
    TaskSkippedEvent,
    TaskSuccessEvent,
    TriggerEvent,
)

from airflow_training.control.root_cause import cause_lines
from airflow_training.documents.text import wrap_lines
from airflow_training.state.store import RunState, Store
from airflow_training.triggers.base import NO_RUN
from airflow_training.triggers.epochs import begin_try
from airflow_training.triggers.event_log import EventLogger, Tail
from airflow_training.triggers.following import FollowingTrigger
from airflow_training.triggers.live_log import LiveLog
from airflow_training.triggers.log_tail import tail_of

__all__ = ["RoleTrigger", "verdict"]


def verdict(state: RunState, role: str) -> BaseTaskEndEvent | None:
    """Return how the role's task ends, None while it does not.

    It fails only when the role failed and so did the job. A role that was ended because the job
    succeeded, or whose failure the job survived, is successful; one that was ended because the job
    failed or was stopped is skipped.
    """
    entry, job = state.ledger.roles[role], state.ledger.job
    if entry.state == "Succeeded":
        return TaskSuccessEvent()
    if not job.is_over:
        return None
    # the job may fail over one instance before its role counts as failed (maxRestarts)
    root = job.root_cause
    to_blame = entry.state == "Failed" or (root is not None and root.role == role)
    if to_blame and job.state != "Succeeded":
        return TaskFailedEvent()
    return TaskSuccessEvent() if job.state == "Succeeded" else TaskSkippedEvent()


class RoleTrigger(FollowingTrigger):
    """Asks once for the role's activation, then only watches."""

    def __init__(self, *, role: str, **group: Any) -> None:
        super().__init__(**group)
        self.role = role

    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().arguments(), "role": self.role}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the end of the task."""
        store, uid = await self.open()
        story = EventLogger(
            store, uid, tell=self.log.log, role=self.role, tail=self._tail(store, uid)
        )
        epoch: int | None = None
        live = LiveLog(store, uid, role=self.role, tell=self.log.log)
        async with aclosing(live), self.following(store, uid) as states:
            async for state in states:
                if not isinstance(state, RunState):
                    self.log.error("%s", state or NO_RUN)
                    yield TaskFailedEvent()
                    return
                if epoch is None:
                    if await self.ended_before_start(state) is not None:
                        yield TaskFailedEvent()  # Airflow has ended the task; nobody hears this
                        return
                    epoch = await self._begin(store, state)
                await story.catch_up()
                if state.ledger.job.epoch < epoch:
                    continue  # cleared: what is over is the epoch before
                if state.ledger.roles[self.role].state == "Running":
                    live.begin(roles=len(state.job.roles))
                end = verdict(state, self.role)
                if end is not None:
                    await self._tell_end(story, state)
                    yield self.success() if isinstance(end, TaskSuccessEvent) else end
                    return

    async def _begin(self, store: Store, state: RunState) -> int:
        """Ask for the role; return the epoch that this try is about."""
        reopened = await asyncio.to_thread(begin_try, store, state, self.ti)
        self._may_host = reopened
        uid = state.record.uid
        if not state.ledger.roles[self.role].activated:
            await self.request(store, uid, "activate", role=self.role)
        return state.ledger.job.epoch + 1 if reopened else 0

    def _tail(self, store: Store, uid: str) -> Tail:
        async def tail(role: str, index: int, attempt: int) -> str:
            return await tail_of(store, uid, role=role, index=index, attempt=attempt)

        return tail

    async def _tell_end(self, story: EventLogger, state: RunState) -> None:
        role = state.ledger.roles[self.role]
        cause = state.ledger.job.root_cause
        if cause is not None and cause.role == self.role and cause.index is not None:
            await story.log_tail(self.role, cause.index, cause.attempt or 0)
            text = "\n".join(cause_lines(cause))
            for line in wrap_lines(f"root cause: {text}"):
                self.log.error("%s", line)
        self.log.info(
            "role %s: %s (%s %s); job %s: %s",
            self.role,
            role.state,
            role.reason,
            role.message,
            state.record.job,
            state.ledger.job.state,
        )

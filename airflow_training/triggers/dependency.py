"""Waits for one dependency of a role while its sensor is deferred. The conditions are `control`'s."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from airflow_training.state.store import RunState
from airflow_training.triggers.base import NO_RUN
from airflow_training.triggers.following import FollowingTrigger, is_over

__all__ = ["DependencyTrigger"]


class DependencyTrigger(FollowingTrigger):
    """Ends when everything that `role` wants of `upstream` is there."""

    def __init__(self, *, role: str, upstream: str, group_id: str = "") -> None:
        super().__init__(group_id=group_id)
        self.role = role
        self.upstream = upstream

    def arguments(self) -> dict[str, Any]:
        """Return what the constructor needs."""
        return {**super().arguments(), "role": self.role, "upstream": self.upstream}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the end of the task."""
        store, uid = await self.open()
        async with self.following(store, uid) as states:
            async for state in states:
                if not isinstance(state, RunState):
                    self.log.error("%s", state or NO_RUN)
                    yield TaskFailedEvent()
                    return
                if is_over(state):
                    yield TaskFailedEvent()
                    return
                yield TaskSuccessEvent()
                return

"""Waits for one dependency of a role while its sensor is deferred. The conditions are `control`'s."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseTaskEndEvent, TaskFailedEvent, TaskSuccessEvent, TriggerEvent

from airflow_training.control.dependencies import DependencyState, dependency_state
from airflow_training.state.store import RunState
from airflow_training.triggers.base import NO_RUN
from airflow_training.triggers.following import FollowingTrigger

__all__ = ["DependencyTrigger", "dependencies_between", "verdict", "waits_for_nothing"]


def dependencies_between(
    state: RunState, *, role: str, upstream: str, now: float
) -> list[DependencyState]:
    """Return the state of everything `role` wants of `upstream`."""
    return [
        dependency_state(state.job, state.ledger, role, dependency, now=now)
        for dependency in state.job.role(role).depends_on
        if dependency.role == upstream
    ]


def waits_for_nothing(state: RunState, role: str, *, now: float) -> bool:
    """Return whether everything that `role` depends on is there, in a run that goes on."""
    return not state.ledger.job.is_over and all(
        dependency_state(state.job, state.ledger, role, dependency, now=now).status == "met"
        for dependency in state.job.role(role).depends_on
    )


def verdict(state: RunState, found: list[DependencyState]) -> BaseTaskEndEvent | None:
    """Return how the sensor ends, None while it waits.

    A dependency that failed does not end it yet: whether the job fails with its role is the
    loop's decision, and a failed task means a failed job.
    """
    if all(each.status == "met" for each in found):
        return TaskSuccessEvent()
    if not state.ledger.job.is_over:
        return None
    return TaskSuccessEvent() if state.ledger.job.state == "Succeeded" else TaskFailedEvent()


class DependencyTrigger(FollowingTrigger):
    """Ends when everything that `role` wants of `upstream` is there.

    Where `plan` has not asked for the role, its last sensor does, in the name of its `run`, which
    only then gets its own trigger: Airflow takes two to three seconds for that.
    """

    def __init__(self, *, role: str, upstream: str, **group: Any) -> None:
        super().__init__(**group)
        self.role = role
        self.upstream = upstream

    def arguments(self) -> dict[str, Any]:
        """Arguments of the constructor."""
        return {**super().arguments(), "role": self.role, "upstream": self.upstream}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield the end of the task."""
        store, uid = await self.open()
        told = ""
        async with self.following(store, uid) as states:
            async for state in states:
                if not isinstance(state, RunState):
                    self.log.error("%s", state or NO_RUN)
                    yield TaskFailedEvent()
                    return
                now = await self.clock(store)
                found = dependencies_between(state, role=self.role, upstream=self.upstream, now=now)
                news = "; ".join(f"{each.status}: {each.message}" for each in found)
                if news != told:
                    told = news
                    self.log.info("%s waits for %s: %s", self.role, self.upstream, news)
                end = verdict(state, found)
                if end is not None:
                    if not state.ledger.roles[self.role].activated and (
                        waits_for_nothing(state, self.role, now=now) and self._run_is_next()
                    ):
                        await self.request(store, uid, "activate", role=self.role)
                    yield self.success() if isinstance(end, TaskSuccessEvent) else end
                    return

    def _run_is_next(self) -> bool:
        """Return whether only sensors are in front of the role's `run`: no task of the user's."""
        task = getattr(self.ti, "task", None)  # absent where Airflow does not give the DAG
        if task is None or task.dag is None:
            return False
        folder = task.task_id.rpartition(".")[0]
        before = task.dag.get_task(f"{folder}.run").upstream_task_ids
        return all(task_id.startswith(f"{folder}.await_") for task_id in before)

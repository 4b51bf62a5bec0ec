"""Warns of a training that ignores its plan: once, in the story of the run."""

from __future__ import annotations

import asyncio

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.control.plan_use import judge_plan_use, wants_split
from airflow_training.documents.instances import InstanceKey
from airflow_training.planning.answers.text import strategy_text
from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

__all__ = ["PlanUseFollower"]

_EVERY_SECONDS = 2.0


class PlanUseFollower(Follower):
    """Looks at the records of the first instance that trains, until it knows."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._settled: set[str] = set()
        """Ids of plans that there is nothing more to say of."""

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_EVERY_SECONDS)
            await self.finish()

    async def finish(self) -> None:
        """Look once. Waits for a store that is away."""
        job, _ = self._run.state()
        plan = job.plan
        if plan is None or plan.id in self._settled:
            return
        if "PLAN_FILE" not in plan.applied_env or not wants_split(plan.strategy):
            self._settled.add(plan.id)
            return
        first = next((role for role in job.roles if role.rank_offset == 0 and role.replicas), None)
        if first is None:
            return
        key, store, uid = InstanceKey(first.name, 0), self._run.store, self._run.ref.uid
        found = (await retrying(store, lambda: store.environments.newest(uid, [key]))).get(key)
        if found is None:
            return
        verdict = judge_plan_use(found.body)
        if verdict.state == "open":
            return
        self._settled.add(plan.id)
        if verdict.state == "ignored":
            message = f"the plan wants {strategy_text(plan.document)}, and nothing shows that it is carried out: {verdict.why}"
            event = Event(
                at=self._run.now(),
                reason=reasons.PLAN_NOT_APPLIED,
                message=message,
                level="warning",
                role=key.role,
                index=key.index,
                data={"plan": plan.id},
            )
            await retrying(store, lambda: store.add_event_once(uid, event))

"""Warns of a training that ignores its plan: once, in the story of the run."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.control.plan_use import judge_plan_use, wants_split
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import ResolvedPlan
from airflow_training.planning.answers.text import strategy_text
from airflow_training.runtimes.clock import steady_now
from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

__all__ = ["PlanUseFollower"]

_LOOK_SECONDS = 2.0
"""How often it is looked whether the loop has new records: that asks nobody."""
_ASK_SECONDS = 60.0
"""How often the store is asked: it has those of pods that report to an address."""


class PlanUseFollower(Follower):
    """Looks at the records of the first instance that trains, until it knows."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._settled: set[str] = set()
        """Ids of plans that there is nothing more to say of."""
        self._judged: tuple[str, ...] = ()
        """The records that the loop had last."""

    async def run(self) -> None:
        asked_at = -_ASK_SECONDS
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            judged = self._plan_to_judge()
            if judged is None:
                continue
            plan, key = judged
            if (seen := self._seen(key)) and seen != self._judged:
                self._judged = seen
                await self._judge(plan, key, _newest(seen))
            elif steady_now() - asked_at >= _ASK_SECONDS:
                asked_at = steady_now()
                await self._judge(plan, key, await self._stored(key))

    async def finish(self) -> None:
        """Look at what is stored once. Waits for a store that is away."""
        judged = self._plan_to_judge()
        if judged is not None:
            plan, key = judged
            await self._judge(plan, key, await self._stored(key))

    def _plan_to_judge(self) -> tuple[ResolvedPlan, InstanceKey] | None:
        """Return the plan of which it is not known yet whether it is carried out, and whose records tell."""
        job, _ = self._run.state()
        plan = job.plan
        if plan is None or plan.id in self._settled:
            return None
        if "PLAN_FILE" not in plan.applied_env or not wants_split(plan.strategy):
            self._settled.add(plan.id)
            return None
        first = next((role for role in job.roles if role.rank_offset == 0 and role.replicas), None)
        return None if first is None else (plan, InstanceKey(first.name, 0))

    def _seen(self, key: InstanceKey) -> tuple[str, ...]:
        """Return the records of an instance that came with observations."""
        found = [each for each in self._run.watcher.instances if each.key == key]
        newest = max(found, key=lambda each: each.attempt_id, default=None)
        return () if newest is None else newest.environment

    async def _stored(self, key: InstanceKey) -> Mapping[str, Any]:
        store, uid = self._run.store, self._run.ref.uid
        found = await retrying(store, lambda: store.environments.newest(uid, [key]))
        return found[key].body if key in found else {}

    async def _judge(self, plan: ResolvedPlan, key: InstanceKey, record: Mapping[str, Any]) -> None:
        """Warn where a record tells that the plan is ignored."""
        store, uid = self._run.store, self._run.ref.uid
        verdict = judge_plan_use(record)
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


def _newest(lines: Sequence[str]) -> Mapping[str, Any]:
    """Return the newest record of a state among what an agent wrote; empty where there is none."""
    for line in reversed(lines):
        try:
            found = json.loads(line)
        except ValueError:
            continue
        if isinstance(found, dict) and found.get("on") != "software":
            return found
    return {}

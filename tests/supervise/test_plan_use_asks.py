"""Whether a plan is carried out is told by what the loop has seen; the store is asked seldom."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_training.control.attempts import FIRST_ATTEMPT
from airflow_training.control.model import Event, Ledger
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import ResolvedPlan
from airflow_training.supervise.followers import plan_use
from airflow_training.supervise.followers.follower import FollowedRun
from airflow_training.supervise.followers.plan_use import PlanUseFollower
from tests.builders import job, role
from tests.waiting import until

pytestmark = pytest.mark.e2e

IGNORES = json.dumps(
    {"on": "interval", "step": 3, "plan": {"carried_out": False, "mentions": [], "files": 2}}
)
SOFTWARE = json.dumps({"on": "software"})
DOCUMENT = {"id": "p", "strategy": {"tp": 2}}


class CountingStore:
    """A store that has no record of its own, and counts how often it is asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.events: list[Event] = []
        self.environments = self

    def newest(self, *_: Any) -> dict[InstanceKey, Any]:
        self.asked += 1
        return {}

    def add_event_once(self, _: str, event: Event) -> None:
        self.events.append(event)


async def test_the_store_is_not_asked_for_what_the_loop_has_seen(monkeypatch):
    looks = 0

    async def look_soon(_: float) -> None:
        nonlocal looks
        looks += 1
        await sleep(0)

    sleep = asyncio.sleep
    monkeypatch.setattr(plan_use, "asyncio", SimpleNamespace(sleep=look_soon))
    monkeypatch.setattr(plan_use, "strategy_text", lambda _: "tp 2")
    plan = ResolvedPlan(
        document=DOCUMENT, id="p", strategy={"tp": 2}, applied_env=frozenset({"PLAN_FILE"})
    )
    planned = replace(job(role("worker", 2, rank_offset=0)), plan=plan)
    seen: list[Any] = []
    store = CountingStore()
    run = SimpleNamespace(
        store=store,
        ref=SimpleNamespace(uid="u"),
        state=lambda: (planned, Ledger()),
        watcher=SimpleNamespace(instances=seen),
        now=lambda: 1.0,
    )
    following = asyncio.ensure_future(PlanUseFollower(cast("FollowedRun", run)).run())
    try:
        await until(lambda: looks > 50)
        assert store.asked == 1, "once at the beginning, and then seldom"
        observed = SimpleNamespace(
            key=InstanceKey("worker", 0), attempt_id=FIRST_ATTEMPT, environment=(IGNORES, SOFTWARE)
        )
        seen.append(observed)
        await until(lambda: store.events)
        assert "nothing shows that it is carried out" in store.events[0].message
        assert store.asked == 1
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

"""Tells in the story of a run that ranks formed their group again, and what that cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

from airflow_training.control.regrouping import regrouped_event
from airflow_training.control.reports import ProgressReport, Regrouping
from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

__all__ = ["RegroupingFollower"]


class RegroupingFollower(Follower):
    """Hears it in the progress of instances; the driver before may have told it already."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._heard: dict[tuple[InstanceKey, Regrouping], None] = {}
        self._told: set[tuple[InstanceKey, Regrouping]] = set()
        self._news = asyncio.Event()

    def on_progress(self, fresh: Mapping[InstanceKey, ProgressReport]) -> None:
        for key, report in fresh.items():
            new = [(key, each) for each in report.regrouped if (key, each) not in self._told]
            self._heard |= dict.fromkeys(new)
        if self._heard:
            self._news.set()

    async def run(self) -> None:
        while True:
            await self._news.wait()
            self._news.clear()
            await self.finish()

    async def finish(self) -> None:
        """Store what was heard. Waits for a store that is away."""
        store, uid = self._run.store, self._run.ref.uid
        for key, each in list(self._heard):
            plan = self._run.state()[0].plan
            moves = () if plan is None else plan.moves
            event = regrouped_event(key, each, moves=moves, now=self._run.now())
            await retrying(store, partial(store.add_event_once, uid, event))
            self._told.add((key, each))
            self._heard.pop((key, each), None)

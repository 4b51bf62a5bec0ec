"""Brings what scripts report to the store, and tells the other followers of it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

__all__ = ["ProgressFollower"]

_EVERY_SECONDS = 1.0


class ProgressFollower(Follower):
    """Saves progress, and the records of instances' environments, at most once a second."""

    def __init__(self, run: FollowedRun, *, others: Sequence[Follower]) -> None:
        self._run = run
        self._others = others

    async def run(self) -> None:
        while True:
            await self._run.watcher.progressed.wait()
            await self.finish()
            await asyncio.sleep(_EVERY_SECONDS)

    async def finish(self) -> None:
        """Save what came since the last time. Waits for a store that is away."""
        store, uid, watcher = self._run.store, self._run.ref.uid, self._run.watcher
        if fresh := watcher.pop_progress():
            self._run.progress.update(fresh)
            for each in self._others:
                each.on_progress(fresh)
            await retrying(store, lambda: store.progress.save(uid, fresh))
            job, _ = self._run.state()
            if job.stop_until:  # the next pass may come 10 s later
                self._run.wake()
        if environment := watcher.pop_environment():
            await retrying(store, lambda: store.environments.save(uid, environment))

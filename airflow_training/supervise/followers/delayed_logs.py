"""Brings what logs say to the store, once the run is older than most failures to start.

What reads logs is imported only then: a short run pays nothing for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.followers.follower import FollowedRun, Follower

if TYPE_CHECKING:
    from airflow_training.supervise.followers.log_following import LogFollower

__all__ = ["DelayedLogFollower"]

_AFTER_SECONDS = 5.0


class DelayedLogFollower(Follower):
    """What scripts report themselves counts before what is read in their logs."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run
        self._reporting: set[InstanceKey] = set()
        self._follower: LogFollower | None = None

    async def run(self) -> None:
        await asyncio.sleep(_AFTER_SECONDS)
        from airflow_training.supervise.followers.log_following import LogFollower

        job, _ = self._run.state()
        self._follower = LogFollower(
            store=self._run.store,
            runtime=self._run.runtime,
            run=self._run.ref,
            patterns=job.log_patterns,
            ledger=lambda: self._run.state()[1],
            now=self._run.now,
            on_progress=self._read_in_log,
        )
        self._follower.reported(self._run.progress)
        await self._follower.run()

    def on_progress(self, fresh: Mapping[InstanceKey, ProgressReport]) -> None:
        self._reporting |= fresh.keys()
        if self._follower is not None:
            self._follower.reported(fresh)

    def _read_in_log(self, key: InstanceKey, progress: ProgressReport) -> None:
        if key not in self._reporting:
            self._run.progress[key] = progress

    async def finish(self) -> None:
        if self._follower is not None:
            await self._follower.finish()

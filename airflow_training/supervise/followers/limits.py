"""Looks whether the account of a run has reached a limit, and asks of the run what the account says."""

from __future__ import annotations

import asyncio

from airflow_training.supervise.followers.follower import FollowedRun, Follower
from airflow_training.supervise.retrying import retrying

__all__ = ["LimitFollower"]

_EVERY_SECONDS = 10.0


class LimitFollower(Follower):
    """Of a run that resources were reserved for; others have no account and are asked for nothing."""

    def __init__(self, run: FollowedRun) -> None:
        self._run = run

    async def run(self) -> None:
        """What is asked goes through the store, as a user's request does, and is decided like one."""
        store, uid = self._run.store, self._run.ref.uid
        if await retrying(store, lambda: store.reservations.of_run(uid)) is None:
            return
        from airflow_training.accounts.operations import (
            enforce,
        )  # only runs with an account need it

        while True:
            await retrying(store, lambda: enforce(store, runs=[uid]))
            await asyncio.sleep(_EVERY_SECONDS)

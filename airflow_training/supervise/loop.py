"""`Supervisor`: runs one job to its end on one runtime, fenced by the store's lease.

Takes and gives up the lease; what happens under it is in `drive`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    Event,
    InstanceKey,
    JobState,
    Ledger,
    Progress,
)
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store, Version
from airflow_training.supervise.drive import Drive, retrying
from airflow_training.supervise.hub import Hub, get_hub
from airflow_training.supervise.lease_keeper import (
    LEASE_SECONDS,
    LeaseKeeper,
    steady_now,
    take_lease,
)
from airflow_training.supervise.owners import forget_owner
from airflow_training.supervise.waiting import is_set_within

__all__ = ["Supervisor"]

log = logging.getLogger(__name__)
T = TypeVar("T")


class Supervisor:
    """Lease, observe, decide, persist, act, until the job is done and drained."""

    def __init__(
        self,
        *,
        store: Store,
        runtime: Runtime,
        run_uid: str,
        owner: str,
        on_event: Callable[[Event], None] | None = None,
        max_running_jobs: int = 0,
        lease_seconds: float = LEASE_SECONDS,
        read_logs: bool = False,
    ) -> None:
        """`owner`: `<host>/<boot id>/<pid>/<start time>/<nonce>`, so a dead holder can be proven.

        `owners.new_owner()` makes one. `on_event` is called on the event loop after the event
        was persisted and acted on. `read_logs`: metrics and progress also come from the logs.
        """
        self._store = store
        self._runtime = runtime
        self._uid = run_uid
        self._owner = owner
        self._on_event = on_event
        self._max_running_jobs = max_running_jobs
        self._lease_seconds = lease_seconds
        self._read_logs = read_logs
        self._hub: Hub | None = None
        self._keeper: LeaseKeeper | None = None
        self._drive: Drive | None = None
        self._changed = asyncio.Event()

    @property
    def ledger(self) -> Ledger | None:
        """Return the newest persisted ledger; None before the lease was taken."""
        return self._drive.ledger if self._drive is not None else None

    @property
    def progress(self) -> Mapping[InstanceKey, Progress]:
        """Return the newest progress of each instance that this holder has seen."""
        return self._drive.progress if self._drive is not None else {}

    def poke(self) -> None:
        """Look at the store's requests now (an in-process signal; the store is the truth)."""
        if self._hub is not None:
            self._hub.poke(self._uid)

    async def run(self) -> JobState:
        """Wait in the queue, hold the lease, drive the job; return its terminal state.

        Raises LeaseLost when another holder took over, RuntimeUnavailable never (it retries).
        Cancelling it stops the loop only: the training goes on and can be adopted.
        """
        self._hub = hub = get_hub(self._store)
        try:
            with hub.following(self._uid, self._on_version):
                taken = await self._take_lease(hub)
                if isinstance(taken, str):
                    return taken
                self._keeper = taken
                with hub.keeping(taken):
                    drive = Drive(
                        store=self._store,
                        runtime=self._runtime,
                        keeper=taken,
                        hub=hub,
                        on_event=self._on_event,
                        max_running_jobs=self._max_running_jobs,
                        read_logs=self._read_logs,
                    )
                    self._drive = drive
                    return await _unless_lost(taken, drive.run())
        finally:
            await self._give_up()

    async def _take_lease(self, hub: Hub) -> LeaseKeeper | JobState:
        """Return the lease once nobody else holds it, or the state of a run that has ended."""
        while True:
            self._changed.clear()
            ended = await retrying(self._ended)
            if ended is not None:
                return ended
            asked_at = steady_now()
            lease = await retrying(
                lambda: take_lease(
                    self._store, self._uid, owner=self._owner, seconds=self._lease_seconds
                )
            )
            if lease is not None:
                return LeaseKeeper(lease, seconds=self._lease_seconds, taken_at=asked_at)
            await is_set_within(self._changed, min(hub.poll_seconds, self._lease_seconds / 5))

    def _ended(self) -> JobState | None:
        """Return the terminal state of a run that is over and that nobody wants reopened."""
        job = self._store.ledger(self._uid).job
        if job.state not in TERMINAL_JOB_STATES or not job.drained:
            return None
        waiting = self._store.requests(self._uid, after=job.seen_request)
        return None if any(each.kind == "reopen" for each in waiting) else job.state

    def _on_version(self, version: Version) -> None:
        self._changed.set()
        keeper = self._keeper
        if keeper is not None and version.generation > keeper.lease.generation:
            keeper.renewed(None, asked_at=steady_now())
        if self._drive is not None:
            self._drive.requested(version.last_request)

    async def _give_up(self) -> None:
        """Release the lease, so that the next holder need not wait for it to run out."""
        forget_owner(self._owner)
        if self._keeper is None:
            return
        release = asyncio.ensure_future(asyncio.to_thread(self._store.release, self._keeper.lease))
        try:
            await asyncio.shield(release)
        except Exception:
            log.warning("lease not released; it runs out by itself", exc_info=True)
        if self._hub is not None:
            self._hub.poke(self._uid)


async def _unless_lost(keeper: LeaseKeeper, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns; stop it at once and raise LeaseLost when the lease is lost."""
    working = asyncio.ensure_future(work)
    lost = asyncio.ensure_future(keeper.lost.wait())
    try:
        await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise LeaseLost(f"run {keeper.lease.run}: another holder has taken over")
    finally:
        for task in (working, lost):
            task.cancel()
        await asyncio.gather(working, lost, return_exceptions=True)

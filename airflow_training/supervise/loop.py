"""`Supervisor`: runs one job to its end on one runtime, fenced by the store's lease.

Takes and gives up the lease; what happens under it is in `drive`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, TypeVar

from airflow_training.control.model import Event, JobEntry, JobState, Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import LeaseLost, RuntimeUnavailable
from airflow_training.runtimes.clock import Clock, WallClock, steady_now
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store, Version
from airflow_training.supervise.absences import absence_of
from airflow_training.supervise.drive import Drive
from airflow_training.supervise.hub import Hub, get_hub
from airflow_training.supervise.lease_keeper import LeaseKeeper, take_lease
from airflow_training.supervise.owners import LEASE_SECONDS, forget_owner
from airflow_training.supervise.retrying import retrying
from airflow_training.supervise.waiting import alongside, is_set_within

__all__ = ["Supervisor"]

T = TypeVar("T")
_RELEASE_SECONDS = 2.0


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
        clock: Clock | None = None,
    ) -> None:
        """`owner`: `<host>/<boot id>/<pid>/<start time>/<nonce>`, so a dead holder can be proven.

        `owners.new_owner()` makes one. `on_event` is called on the event loop after the event
        was persisted and acted on. `read_logs`: metrics and progress also come from the logs.
        `clock`: of a runtime that simulates; else each lease begins at the time of day.
        """
        self._store = store
        self._runtime = runtime
        self._uid = run_uid
        self._owner = owner
        self._on_event = on_event
        self._max_running_jobs = max_running_jobs
        self._lease_seconds = lease_seconds
        self._read_logs = read_logs
        self._clock = clock
        self._hub: Hub | None = None
        self._keeper: LeaseKeeper | None = None
        self._drive: Drive | None = None
        self._stop_by: str | None = None
        self._changed = asyncio.Event()

    @property
    def ledger(self) -> Ledger | None:
        """Return the newest persisted ledger; None before the lease was taken."""
        return self._drive.ledger if self._drive is not None else None

    @property
    def progress(self) -> Mapping[InstanceKey, ProgressReport]:
        """Return the newest progress of each instance that this holder has seen."""
        return self._drive.progress if self._drive is not None else {}

    @property
    def is_unanswered(self) -> bool:
        """Whether the runtime does not answer whoever drives the run here."""
        return self._drive is not None and self._drive.is_unanswered

    def interrupt(self, *, by: str) -> None:
        """End the run, though the store may be away; before the lease is held, as soon as it is.

        `by`: the signal that this process was sent.
        """
        self._stop_by = by
        if self._drive is not None:
            self._drive.interrupt(by=by)

    async def run(self) -> JobState:
        """Wait in the queue, hold the lease, drive the job; return its terminal state.

        Raises LeaseLost when another holder took over, StopUnconfirmed after `interrupt` where the runtime does
        not answer, RuntimeUnavailable only after `interrupt`, or where
        the store's file is gone: what this holder knew of has ended, and nobody could be told (else it retries).
        Cancelling it stops the loop only: the training goes on and can be adopted.
        """
        async with self._followed() as hub:
            taken = await self._take_lease(hub)
            if isinstance(taken, str):
                return taken
            with self._driving(taken, hub) as drive:
                return await _unless_over(taken, drive, drive.run())

    async def first_pass(self) -> bool:
        """Make the first pass at once and give the lease up; whoever drives the run goes on.

        Returns False where that is not for us: another one holds the lease, the run has ended, or
        its turn has not come. Raises LeaseLost, and whatever store and runtime raise.
        """
        async with self._followed() as hub:
            taken = await asyncio.to_thread(self._try_lease)
            if not isinstance(taken, LeaseKeeper):
                return False
            with self._driving(taken, hub) as drive:
                return await _unless_over(taken, drive, drive.first_pass())

    @contextlib.asynccontextmanager
    async def _followed(self) -> AsyncIterator[Hub]:
        """Hear of the run's new versions; in the end give up what was taken meanwhile."""
        self._hub = hub = get_hub(self._store)
        try:
            with hub.following(self._uid, self._on_version):
                yield hub
        finally:
            await self._release_lease()

    @contextlib.contextmanager
    def _driving(self, keeper: LeaseKeeper, hub: Hub) -> Iterator[Drive]:
        """Give the drive of a lease that is kept."""
        self._keeper = keeper
        with hub.keeping(keeper):
            self._drive = Drive(
                store=self._store,
                runtime=self._runtime,
                keeper=keeper,
                hub=hub,
                on_event=self._on_event,
                max_running_jobs=self._max_running_jobs,
                read_logs=self._read_logs,
                clock=self._clock or WallClock(),
            )
            if self._stop_by is not None:
                self._drive.interrupt(by=self._stop_by)
            yield self._drive

    async def _take_lease(self, hub: Hub) -> LeaseKeeper | JobState:
        """Return the lease once nobody else holds it, or the state of a run that has ended."""
        while True:
            self._changed.clear()
            taken = await retrying(self._store, self._try_lease)
            if taken is not None:
                return taken
            await is_set_within(self._changed, min(hub.poll_seconds, self._lease_seconds / 5))

    def _try_lease(self) -> LeaseKeeper | JobState | None:
        """Return the lease, None while another one holds it, or the state of a run that has ended."""
        job = self._store.ledger(self._uid).job
        if job.is_over and not self._is_reopened(job):
            return job.state
        before = self._store.driver(self._uid)
        seconds, asked_at = self._lease_seconds, steady_now()
        lease = take_lease(
            self._store, self._uid, owner=self._owner, seconds=seconds, driver=before
        )
        if lease is None:
            return None
        # nobody had to drive what was over; a lease begins by the store's clock
        now = lease.expires_at - seconds
        absence = None if job.is_over else absence_of(before, now=now, lease_seconds=seconds)
        return LeaseKeeper(lease, seconds=seconds, taken_at=asked_at, absence=absence)

    def _is_reopened(self, job: JobEntry) -> bool:
        """Return whether somebody wants a run reopened that is over."""
        waiting = self._store.requests(self._uid, after=job.seen_request)
        return any(each.kind == "reopen" for each in waiting)

    def _on_version(self, version: Version) -> None:
        self._changed.set()
        keeper = self._keeper
        if keeper is not None and version.generation > keeper.lease.generation:
            keeper.renewed(None, asked_at=steady_now())
        if self._drive is not None:
            self._drive.requested(version.last_request)

    async def _release_lease(self) -> None:
        """Release the lease, so that the next holder need not wait for it to run out."""
        forget_owner(self._owner)
        if self._keeper is None:
            return
        release = asyncio.ensure_future(asyncio.to_thread(self._store.release, self._keeper.lease))
        release.add_done_callback(lambda task: task.cancelled() or task.exception())
        # where the store is away it may take half a minute to say so, and it runs out by itself
        await asyncio.wait({release}, timeout=_RELEASE_SECONDS)
        if release.done() and isinstance(error := release.exception(), Exception):
            self._store.outage.record_failure(error)
        if self._hub is not None:
            self._hub.notify(self._uid)


async def _unless_over(keeper: LeaseKeeper, drive: Drive, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` of the drive returns; stop it at once when the lease is lost."""
    async with alongside(work, keeper.lost.wait(), drive.left.wait()) as tasks:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        driving, _, left = tasks
        if driving.done():
            result: T = driving.result()
            return result
        if left.done() and drive.unconfirmed is not None:
            raise drive.unconfirmed
        if left.done():
            raise RuntimeUnavailable(f"run {keeper.lease.run}: the store does not know of its end")
        raise LeaseLost(f"run {keeper.lease.run}: another holder has taken over")

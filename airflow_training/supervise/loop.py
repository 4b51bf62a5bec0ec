"""`Supervisor`: runs one job to its end on one runtime, fenced by the store's lease."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from airflow_training.control.decide import decide
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    Decision,
    Event,
    InstanceKey,
    JobState,
    Ledger,
    Observation,
    Progress,
    Request,
)
from airflow_training.errors import InputError, LeaseLost, RuntimeUnavailable
from airflow_training.runtimes.port import Outcome, Runtime
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.state.store import RunRecord, Store, Version
from airflow_training.supervise import queueing
from airflow_training.supervise.effects import Effects
from airflow_training.supervise.finishing import finish
from airflow_training.supervise.hub import Hub, get_hub
from airflow_training.supervise.lease_keeper import (
    LEASE_SECONDS,
    LeaseKeeper,
    steady_now,
    take_lease,
)
from airflow_training.supervise.owners import forget_owner
from airflow_training.supervise.watcher import Watcher, retry_delay

__all__ = ["Supervisor"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_PROGRESS_SECONDS = 1.0


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
    ) -> None:
        """`owner`: `<host>/<boot id>/<pid>/<start time>/<nonce>`, so a dead holder can be proven.

        `owners.new_owner()` makes one. `on_event` is called on the event loop after the event
        was persisted and acted on.
        """
        self._store = store
        self._runtime = runtime
        self._uid = run_uid
        self._owner = owner
        self._on_event = on_event
        self._max_running_jobs = max_running_jobs
        self._lease_seconds = lease_seconds
        self._wake = asyncio.Event()
        self._hub: Hub | None = None
        self._keeper: LeaseKeeper | None = None
        self._last_request = 0
        self._requests: tuple[Request, ...] = ()
        self._ledger: Ledger | None = None
        self._progress: dict[InstanceKey, Progress] = {}
        self._clock = 0.0

    @property
    def ledger(self) -> Ledger | None:
        """Return the newest persisted ledger; None before the lease was taken."""
        return self._ledger

    @property
    def progress(self) -> Mapping[InstanceKey, Progress]:
        """Return the newest progress of each instance that this holder has seen."""
        return self._progress

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
        keeper: LeaseKeeper | None = None
        try:
            with hub.following(self._uid, self._on_version):
                taken = await self._take_lease(hub)
                if isinstance(taken, str):
                    return taken
                self._keeper = keeper = taken
                with hub.keeping(keeper):
                    return await _unless_lost(keeper, self._drive(keeper))
        finally:
            forget_owner(self._owner)
            if keeper is not None:
                with contextlib.suppress(Exception):
                    await asyncio.shield(asyncio.to_thread(self._store.release, keeper.lease))
                hub.poke(self._uid)

    # lease -----------------------------------------------------------------------------------
    async def _take_lease(self, hub: Hub) -> LeaseKeeper | JobState:
        """Return the lease once nobody else holds it, or the state of a run that has ended."""
        while True:
            ended = await self._retrying(self._ended)
            if ended is not None:
                return ended
            asked_at = steady_now()
            lease = await self._retrying(
                lambda: take_lease(
                    self._store, self._uid, owner=self._owner, seconds=self._lease_seconds
                )
            )
            if lease is not None:
                return LeaseKeeper(lease, seconds=self._lease_seconds, taken_at=asked_at)
            await self._sleep(min(hub.poll_seconds, self._lease_seconds / 5))

    def _ended(self) -> JobState | None:
        """Return the terminal state of a run that is over and that nobody wants reopened."""
        job = self._store.ledger(self._uid).job
        if job.state not in TERMINAL_JOB_STATES or not job.drained:
            return None
        waiting = self._store.requests(self._uid, after=job.seen_request)
        return None if any(each.kind == "reopen" for each in waiting) else job.state

    def _on_version(self, version: Version) -> None:
        keeper = self._keeper
        if keeper is not None and version.generation > keeper.lease.generation:
            keeper.lost.set()
        if keeper is None or version.last_request > self._last_request:
            self._last_request = max(self._last_request, version.last_request)
            self._wake.set()

    # the loop --------------------------------------------------------------------------------
    async def _drive(self, keeper: LeaseKeeper) -> JobState:
        record, job, ledger = await self._retrying(self._load)
        self._ledger = ledger
        run = RunRef(
            uid=record.uid,
            job=job.name,
            namespace=job.namespace,
            controller=record.controller,
            generation=keeper.lease.generation,
        )
        if record.queued and not await self._wait_for_turn(keeper, job):
            await self._retrying(lambda: self._store.tombstone(self._uid, reason="Killed"))
        watcher = Watcher(self._runtime, run, on_change=self._wake.set)
        watching: asyncio.Task[None] | None = None
        effects: Effects | None = None
        failures = 0
        progress = asyncio.ensure_future(self._keep_progress(watcher))
        try:
            while True:
                self._wake.clear()
                retry_at: float | None = None
                try:
                    if effects is None and not _over(self._ledger):
                        effects = await self._prepare(keeper, run, job)
                        watching = asyncio.ensure_future(watcher.run())
                    decision = await self._decide(keeper, job, watcher)
                    await self._persist(keeper, job, decision)
                    if effects is not None and decision.actions:
                        seen = watcher.observations
                        performed = await effects.perform(
                            decision.actions,
                            ledger=decision.new_ledger,
                            seen=seen.instances if seen else (),
                        )
                        for outcome in performed.failed:
                            watcher.imagine(_never_created(outcome, self._now()))
                        if performed.refused:
                            retry_at = self._now() + retry_delay(failures)
                            failures += 1
                        else:
                            failures = 0
                    self._tell(decision.events)
                except RuntimeUnavailable:
                    ...
        finally:
            ...

"""The loop of one lease holder: requests and observations in; decide, persist, act, tell.

The only place where decisions become actions. Who may run it is `loop`'s business, what to do is
`control`'s.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from airflow_training.admission.queueing import QueueTurn, queued_ledger, role_resources
from airflow_training.control.decide import decide
from airflow_training.control.dependencies import waits_briefly
from airflow_training.control.model import (
    STOPS,
    TERMINAL_JOB_STATES,
    Decision,
    Event,
    JobState,
    Ledger,
    Request,
)
from airflow_training.control.preemption import is_preempted
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import LeaseLost, RuntimeUnavailable, StopUnconfirmed
from airflow_training.runtimes.clock import Clock
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import Store
from airflow_training.supervise.abandoned_places import take_turn
from airflow_training.supervise.action_runner import ActionRunner
from airflow_training.supervise.expiry import expire_due
from airflow_training.supervise.followers.follower import (
    Evidence,
    FollowedRun,
    Follower,
    FollowerChange,
)
from airflow_training.supervise.followers.selection import followers_of
from airflow_training.supervise.hub import Hub
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.leaving import unconfirmed_stop, until_store_is_gone
from airflow_training.supervise.retrying import retrying
from airflow_training.supervise.run_clock import RunClock, newest_time
from airflow_training.supervise.stored_records import StoredRecords
from airflow_training.supervise.unseen_attempts import with_unseen_attempts
from airflow_training.supervise.waiting import alongside, any_within, is_set_within
from airflow_training.supervise.watcher import Watcher

__all__ = ["Drive"]

log = logging.getLogger(__name__)

_NEVER_BEGUN = "it was ended while it waited in the queue, before it began"
_ENDED_IN_QUEUE = "it was ended while it waited in the queue again"
_SNAPSHOT_SECONDS = 1.0
_PATIENCE_SECONDS = 15.0
"""For the snapshot of who makes one pass only: without it nothing may be created."""
_FIRST_SECONDS = 2.0
_PAUSE_SECONDS = 0.5
"""For who makes the first pass only: how long, after it, others may begin behind what has begun.

A pod is silent for longer while it starts: it is not waited for.
"""
_SHORTEST_WAIT_SECONDS = 0.005
_RECORD_SECONDS = 1.0
"""How long a stop waits for the store to take it before it is carried out without."""
_UNRECORDED_SECONDS = 0.2


class Drive:
    """Everything one holder knows while it drives one run."""

    def __init__(
        self,
        *,
        store: Store,
        runtime: Runtime,
        keeper: LeaseKeeper,
        hub: Hub,
        on_event: Callable[[Event], None] | None,
        max_running_jobs: int,
        read_logs: bool,
        clock: Clock,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._keeper = keeper
        self._hub = hub
        self._uid = keeper.lease.run
        self._on_event = on_event
        self._max_running_jobs = max_running_jobs
        self._read_logs = read_logs
        self._followers: Sequence[Follower] = ()
        self._wake = asyncio.Event()
        self._last_request = 0
        self._requests: tuple[Request, ...] = ()
        self._records = StoredRecords(store, keeper.lease.run)
        self._output_saved = False
        self._clock = RunClock(clock)
        self._runner = ActionRunner(
            store=store,
            runtime=runtime,
            keeper=keeper,
            clock=self._clock,
            is_halted=lambda: self._own_stop is not None,
        )
        self._own_stop: Request | None = None
        self._own_resume: Request | None = None
        self._gave_place_up = False
        self._stop_asked = asyncio.Event()
        self._stopping: asyncio.Task[None] | None = None
        self.left = asyncio.Event()
        """Set when this holder can do no more: nothing is alive and the store cannot be told, or a stop is not answered."""
        self.unconfirmed: StopUnconfirmed | None = None
        """Of the second kind: what was left to the runtime."""
        self.ledger = Ledger()
        self.progress: dict[InstanceKey, ProgressReport] = {}

    def requested(self, last_request: int) -> None:
        """Say that the store holds requests up to this id."""
        if last_request > self._last_request:
            self._last_request = last_request
            self._wake.set()

    def interrupt(self, *, by: str) -> None:
        """End the run, as this process was sent a signal (`by`): from here on nothing begins, and what lives ends though the store is away.

        Intent comes first where the store takes it. Otherwise the stop is decided in memory and
        acted on, and where the store does not answer by then either, `left` is set.
        """
        if self._own_stop is None:
            self._own_stop = Request(id=0, kind="interrupt", by=by, at=self._now())
            self._stopping = asyncio.create_task(self._stop_without_store())
            self._stop_asked.set()
            self._wake.set()

    async def run(self) -> JobState:
        """Drive the run until it is done; only LeaseLost or cancellation ends it before."""
        await retrying(self._store, self._load)
        if self._queued:
            await self._wait_in_queue()
            self._continue_preempted()
        async with self._background() as background:
            while True:
                self._wake.clear()
                try:
                    decision, wait_seconds = await self._next_pass(background)
                    if decision.done:
                        break
                    if self._waits_again:
                        wait_seconds = min(wait_seconds, await self._try_turn_again())
                except LeaseLost:
                    raise
                except Exception as error:
                    if isinstance(error, RuntimeUnavailable):
                        self._store.outage.record_failure(error)
                    else:
                        log.exception("run %s: a pass failed; trying again", self._uid)
                    await is_set_within(self._wake, await self._after_failure())
                else:
                    await self._until_due(wait_seconds)
            await self._finish()
        return self.ledger.job.state

    async def first_pass(self) -> bool:
        """Begin what may begin now, and leave the rest to the next holder.

        What begins may let others begin: as long as that goes on without a pause, so does this.
        Returns False for a run whose turn has not come. Whatever else keeps it from beginning is
        raised: the next holder tries again.
        """
        await asyncio.to_thread(self._load)
        if self._queued and not await take_turn(self._queue_turn()):
            return False
        self._continue_preempted()
        until = self._now() + _FIRST_SECONDS
        async with self._background() as background:
            while True:
                self._wake.clear()
                decision, _ = await self._next_pass(background, snapshot_seconds=_PATIENCE_SECONDS)
                if decision.done:
                    await self._finish()
                    return True
                more = waits_briefly(self._job, self.ledger) and self._now() < until
                if not more or not await is_set_within(self._wake, _PAUSE_SECONDS):
                    return True

    @contextlib.asynccontextmanager
    async def _background(self) -> AsyncIterator[list[asyncio.Future[Any]]]:
        """Give what goes on beside the passes, and end it with them."""
        background: list[asyncio.Future[Any]] = []
        background.append(asyncio.ensure_future(self._leave_without_store()))
        background.append(asyncio.ensure_future(self._leave_without_runtime()))
        try:
            for follower in self._followers:
                await self._store_change(await follower.begin(now=self._now()))
                background.append(asyncio.ensure_future(follower.run()))
            yield background
        finally:
            if self._stopping is not None:
                background.append(self._stopping)
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            for follower in self._followers:
                await follower.close()

    async def _next_pass(
        self, background: list[asyncio.Future[Any]], *, snapshot_seconds: float = _SNAPSHOT_SECONDS
    ) -> tuple[Decision, float]:
        """Make a pass; before the first one prepare the run and look at what is there."""
        if not self._runner.is_prepared and await self._runner.prepare(
            self._run, self._job, self.ledger, watcher=self._watcher
        ):
            background.append(asyncio.ensure_future(self._watcher.run()))
            background.append(asyncio.ensure_future(self._runtime.collect_logs(self._run)))
            await self._watcher.first_snapshot(timeout_seconds=snapshot_seconds)
        return await self._pass()

    async def _finish(self) -> None:
        for follower in self._followers:
            await follower.finish()
        if self._job.clean_pod_policy == "All" or self._runtime.capabilities.leaves_objects:
            await self._runner.remove(self._run)
        await expire_due(store=self._store, runtime=self._runtime, besides=self._uid)

    # before the first decision -----------------------------------------------------------------
    def _load(self) -> None:
        record = self._store.run(self._uid)
        if record is None:
            raise LeaseLost(f"run {self._uid} is not in the store any more")
        self._job = self._store.job(self._uid)
        self.ledger = self._store.ledger(self._uid)
        self._clock.not_before(newest_time(self.ledger))
        if self.ledger.job.is_over:
            # only a reopened run gets here: it waits for its turn like any other
            self._store.requeue(self._uid)
            record = self._store.run(self._uid) or record
        self._queued = record.queued
        self._run = RunRef(
            uid=record.uid,
            job=self._job.name,
            namespace=self._job.namespace,
            controller=record.controller,
            generation=self._keeper.lease.generation,
            submitted_at=record.submitted_at,
        )
        self._resources = role_resources(self._job)
        self._watcher = Watcher(
            self._runtime,
            self._run,
            on_change=self._wake.set,
            on_room=self._runner.room_made,
            sleep=self._clock.sleep,
        )
        followed = FollowedRun(
            store=self._store,
            runtime=self._runtime,
            ref=self._run,
            watcher=self._watcher,
            state=lambda: (self._job, self.ledger),
            may_create=lambda: self._runner.is_prepared,
            progress=self.progress,
            now=self._now,
            wake=self._wake.set,
            take_absence=self._keeper.take_absence,
        )
        self._followers = followers_of(followed, read_logs=self._read_logs)
        self._read_requests()

    def _read_requests(self) -> None:
        seen = self.ledger.job.seen_request
        self._requests = tuple(self._store.requests(self._uid, after=seen))
        if self._requests:
            self._last_request = max(self._last_request, self._requests[-1].id)

    def _queue_turn(self) -> QueueTurn:
        return QueueTurn(
            store=self._store,
            runtime=self._runtime,
            job=self._job,
            uid=self._uid,
            max_running_jobs=self._max_running_jobs,
        )

    async def _wait_in_queue(self) -> None:
        """Return when it is the run's turn, or when it was killed while it waited."""
        turn = self._queue_turn()
        while not any(request.kind in STOPS for request in self._pending_requests()):
            self._wake.clear()
            try:
                if await take_turn(turn):
                    return
                before = await turn.before()
                ledger, events = queued_ledger(self.ledger, before=before, now=self._now())
                if ledger != self.ledger:
                    await self._commit(ledger, events)
                    self._publish_events(events)
            except LeaseLost:
                raise
            except Exception as error:  # noqa: BLE001  # told there; asked again soon
                self._store.outage.record_failure(error)
            await is_set_within(self._wake, turn.poll_seconds())
            await retrying(self._store, self._read_requests)
        # from here on it can only end: nothing may start it, whoever holds the lease next
        reason = _NEVER_BEGUN if self.ledger.job.started_at is None else _ENDED_IN_QUEUE
        await retrying(self._store, lambda: self._store.tombstone(self._uid, reason=reason))

    @property
    def _waits_again(self) -> bool:
        """Whether the run was preempted, and nothing of it lives."""
        return is_preempted(self.ledger.job) and self.ledger.job.state == "Queued"

    async def _try_turn_again(self) -> float:
        """Give the place up, once, and let the run go on when it is its turn; seconds until the next try.

        Passes are made meanwhile: what was ordered before, and comes late, is ended by them.
        """
        turn = self._queue_turn()
        if not self._gave_place_up:
            generation = self._keeper.lease.generation
            self._gave_place_up = await asyncio.to_thread(
                self._store.queue.give_up, self._uid, generation=generation
            )
        elif await take_turn(turn):
            self._continue_preempted()
        return turn.poll_seconds()

    def _continue_preempted(self) -> None:
        """Have the next pass let the run go on, where it was preempted."""
        ends = any(request.kind in STOPS for request in self._pending_requests())
        if is_preempted(self.ledger.job) and not ends:
            self._gave_place_up = False
            self._own_resume = Request(id=0, kind="resume", by="queue", at=self._now())
            self._wake.set()

    # one pass ----------------------------------------------------------------------------------
    async def _pass(self) -> tuple[Decision, float]:
        """Decide, persist, act, tell; return the decision and seconds until the next pass."""
        await self._keeper.confirm()
        if self._last_request > self.ledger.job.seen_request:
            await asyncio.to_thread(self._read_requests)
        seen = await self._records.add(self._watcher.poll())
        if seen is not None:
            seen = dataclasses.replace(seen, instances=self._clock.by_this_clock(seen.instances))
        known = Evidence()
        for follower in self._followers:
            known |= await follower.evidence(seen)
        decision = decide(
            self._job,
            self.ledger,
            self._pending_requests(),
            seen,
            self._now(),
            generation=self._keeper.lease.generation,
            diagnoses=known.diagnoses,
            undiagnosed=known.undiagnosed,
            committed=known.committed,
            rejected=known.rejected,
            known_reasons=self._runtime.capabilities.reasons,
            refused=self._runner.refused,
            unprepared=self._runner.take_unprepared(),
            time_of_day=self._clock.time_of_day(),
            last_words=known.last_words,
            unanswered=self._runner.unanswered,
        )
        decision = dataclasses.replace(decision, events=(*known.events, *decision.events))
        if decision.done and not self.ledger.job.drained:
            decision = await self._explained(decision)
        await self._save_output()
        await self._commit(decision.new_ledger, decision.events)
        for follower in self._followers:
            follower.on_persisted(known)
        retry_seconds = await self._runner.act(decision)
        self._own_resume = None
        self._publish_events(decision.events)
        for follower in self._followers:
            await self._store_change(follower.change(now=self._now()))
        now = self._now()
        wait_seconds = max((decision.wake_at or float("inf")) - now, _SHORTEST_WAIT_SECONDS)
        return decision, min(wait_seconds, retry_seconds)

    async def _explained(self, decision: Decision) -> Decision:
        """Return the last decision with what followers find out; whoever asks to stop waits for no more of it."""
        for follower in self._followers:
            explaining = follower.explain(decision, now=self._now())
            async with alongside(explaining, self._stop_asked.wait()) as tasks:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                if not tasks[0].done():
                    break
                decision = tasks[0].result()
        return decision

    async def _until_due(self, seconds: float) -> None:
        """Return so long after the pass by the run's clock, or when another pass may be needed."""
        if not self._wake.is_set():
            await any_within(
                self._job.reconcile_seconds, self._wake.wait(), self._clock.sleep(seconds)
            )

    async def _commit(
        self, ledger: Ledger, events: Sequence[Event], *, job: ResolvedJob | None = None
    ) -> None:
        if events or ledger is not self.ledger:
            await asyncio.to_thread(
                self._store.commit,
                self._uid,
                lease=self._keeper.lease,
                old=with_unseen_attempts(self.ledger, ledger, self._watcher.instances),
                new=ledger,
                events=events,
                resources=self._resources,
                job=job,
            )
            self.ledger = ledger
            self._hub.notify(self._uid)

    def _publish_events(self, events: Sequence[Event]) -> None:
        if self._on_event is not None:
            for event in events:
                self._on_event(event)

    async def _after_failure(self) -> float:
        """Read all again, as nobody knows what a broken pass has written; return a delay."""
        delay = self._runner.count_failure()
        self.ledger, job = await retrying(self._store, self._stored)
        if job != self._job:
            self._adopt_job(job)
        await retrying(self._store, self._read_requests)
        return delay

    def _stored(self) -> tuple[Ledger, ResolvedJob]:
        stored = self._store.read([self._uid])[self._uid]
        return stored.ledger, stored.job

    def _now(self) -> float:
        """Return epoch seconds of a clock that nobody sets."""
        return self._clock.now()

    # a stop that does not wait for the store -----------------------------------------------------
    def _pending_requests(self) -> Sequence[Request]:
        """Return what is asked of the run: by others, and of this holder."""
        own = (self._own_resume, self._own_stop)
        return (*self._requests, *(each for each in own if each is not None))

    @property
    def _end_recorded(self) -> bool:
        return self.ledger.job.state in TERMINAL_JOB_STATES and self._keeper.good

    async def _stop_without_store(self) -> None:
        """Leave a stop to the passes while the store takes what they decide, else carry it out."""
        while True:
            await asyncio.sleep(_RECORD_SECONDS)
            if self._end_recorded:
                continue
            await self._end_unrecorded()
            await asyncio.sleep(_RECORD_SECONDS)
            if not self._end_recorded:
                self.left.set()
                return

    async def _leave_without_store(self) -> None:
        """Set `left` once the store's file is gone and nothing is alive: nobody could go on with the run.

        What trains goes on to its end meanwhile: only its bookkeeping is lost.
        """
        await until_store_is_gone(self._store, seen=lambda: self._watcher.instances)
        if self._own_stop is None:  # agents that wait for a next attempt end with the rest
            self._own_stop = Request(
                id=0, kind="stop", reason="its store is gone", by="", at=self._now()
            )
        await self._end_unrecorded()
        self.left.set()

    async def _leave_without_runtime(self) -> None:
        """Set `left` where a stop was asked and the runtime, which alone can carry it out, does not answer."""
        await self._stop_asked.wait()
        self.unconfirmed = await unconfirmed_stop(
            lambda: None if self._end_recorded else self._own_stop,
            store=self._store,
            uid=self._uid,
            is_unanswered=lambda: self.is_unanswered,
            known=lambda: self._watcher.instances or self.ledger.instances.values(),
        )
        self.left.set()

    @property
    def is_unanswered(self) -> bool:
        """Whether the runtime does not answer."""
        return self._runner.is_unanswered

    async def _end_unrecorded(self) -> None:
        """Decide and act as passes do until nothing is alive, but persist nothing."""
        ledger = self.ledger
        while self._runner.is_prepared:  # before, this holder has made nothing
            generation = self._keeper.lease.generation
            seen = self._watcher.glance()
            decision = decide(
                self._job,
                ledger,
                self._pending_requests(),
                seen,
                self._now(),
                generation=generation,
                known_reasons=self._runtime.capabilities.reasons,
            )
            ledger = decision.new_ledger
            if await self._runner.end(decision):
                return
            await asyncio.sleep(_UNRECORDED_SECONDS)

    # what followers ask for, and what is done beside -------------------------------------------------
    async def _store_change(self, change: FollowerChange | None) -> None:
        """Store what a follower asks for; where it is another job, go on as that."""
        if change is not None:
            await self._commit(change.ledger, change.events, job=change.job)
            if change.job is not None:
                self._adopt_job(change.job)
            self._publish_events(change.events)

    def _adopt_job(self, job: ResolvedJob) -> None:
        self._job = job
        self._resources = role_resources(job)
        self._runner.adopt_job(job)
        self._wake.set()

    async def _save_output(self) -> None:
        """Record what the output role uploaded; before its end is, so that no crash loses it."""
        if self._output_saved:
            return
        for each in self._watcher.instances:
            if each.output and each.key == (self._job.output_role, 0):
                await asyncio.to_thread(self._store.set_output, self._uid, each.output)
                self._output_saved = True

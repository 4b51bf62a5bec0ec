"""The loop of one lease holder: requests and observations in; decide, persist, act, tell.

The only place where decisions become actions. Who may run it is `loop`'s business, what to do is
`control`'s.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from airflow_training.control import reasons
from airflow_training.control.decide import decide
from airflow_training.control.model import (
    TERMINAL_JOB_STATES,
    Decision,
    Delete,
    Diagnosed,
    Event,
    InstanceKey,
    JobState,
    Ledger,
    Observations,
    Progress,
    Request,
)
from airflow_training.control.recovery import not_after
from airflow_training.control.root_cause import proof_of, with_diagnosis
from airflow_training.errors import InputError, LeaseLost, RuntimeUnavailable, StillAlive
from airflow_training.runtimes.port import Addresses, Runtime
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.state.store import Store
from airflow_training.supervise.effects import Effects, never_created
from airflow_training.supervise.expiry import expire_due
from airflow_training.supervise.hub import Hub
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.queueing import Turn, queued, role_resources
from airflow_training.supervise.rendering import expected_addresses
from airflow_training.supervise.short_lives import with_short_lives
from airflow_training.supervise.stored_records import StoredRecords
from airflow_training.supervise.waiting import is_set_within
from airflow_training.supervise.watcher import Watcher, retry_delay

if TYPE_CHECKING:
    from airflow_training.supervise.checkpointing import Committed
    from airflow_training.supervise.diagnosing import Diagnoser
    from airflow_training.supervise.log_following import LogFollower
    from airflow_training.supervise.measuring import Meter
    from airflow_training.supervise.processes import Processes
    from airflow_training.supervise.replanning import Replanner, State

__all__ = ["Drive", "retrying"]

log = logging.getLogger(__name__)
T = TypeVar("T")

_PROGRESS_SECONDS = 1.0
_SNAPSHOT_SECONDS = 1.0
_LOG_SECONDS = 5.0
"""Before, no log is read: a short run pays nothing for it."""
_SHORTEST_WAIT_SECONDS = 0.005
_REMOVE_TRIES = 8
_PATIENT_REFUSALS = 4
"""After so many it is told: most refusals are over at once, a wait for a GPU is not."""


async def retrying(call: Callable[[], T]) -> T:
    """Return what a store call returns, off the event loop, trying again while the store is away.

    Only LeaseLost gets through.
    """
    failures = 0
    while True:
        try:
            return await asyncio.to_thread(call)
        except LeaseLost:
            raise
        except Exception:
            failures += 1
            log.warning("the store did not answer; trying again", exc_info=True)
        await asyncio.sleep(retry_delay(failures))


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
        read_logs: bool = False,
    ) -> None:
        self._store = store
        self._runtime = runtime
        self._keeper = keeper
        self._hub = hub
        self._uid = keeper.lease.run
        self._on_event = on_event
        self._max_running_jobs = max_running_jobs
        self._read_logs = read_logs
        self._follower: LogFollower | None = None
        self._reporting: set[InstanceKey] = set()
        self._wake = asyncio.Event()
        self._last_request = 0
        self._requests: tuple[Request, ...] = ()
        self._effects: Effects | None = None
        self._meter: Meter | None = None
        self._replanner: Replanner | None = None
        self._diagnoser: Diagnoser | None = None
        self._committed: Committed | None = None
        self._processes: Processes | None = None
        self._records = StoredRecords(store, keeper.lease.run)
        self._output_saved = False
        self._clock = 0.0
        self._failures = 0
        self.ledger = Ledger()
        self.progress: dict[InstanceKey, Progress] = {}

    def requested(self, last_request: int) -> None:
        """Say that the store holds requests up to this id."""
        if last_request > self._last_request:
            self._last_request = last_request
            self._wake.set()

    async def run(self) -> JobState:
        """Drive the run until it is done; only LeaseLost or cancellation ends it before."""
        await retrying(self._load)
        if self._queued:
            await self._wait_in_queue()
        background = [asyncio.ensure_future(self._save_progress())]
        if self._read_logs:
            background.append(asyncio.ensure_future(self._follow_logs()))
        if self._meter is not None:
            background.append(asyncio.ensure_future(self._meter.run()))
        if self._processes is not None:
            await self._resume_processes(self._processes)
            background.append(asyncio.ensure_future(self._processes.run()))
        if self._replanner is not None:
            looking = self._replanner.run(every_seconds=self._job.reconcile_seconds)
            background.append(asyncio.ensure_future(looking))
        try:
            while True:
                self._wake.clear()
                try:
                    if self._effects is None and await self._prepare():
                        background.append(asyncio.ensure_future(self._watcher.run()))
                        await self._watcher.first_snapshot(timeout_seconds=_SNAPSHOT_SECONDS)
                    decision, wait_seconds = await self._pass()
                    if decision.done:
                        break
                except LeaseLost:
                    raise
                except Exception:
                    log.exception("run %s: a pass failed; trying again", self._uid)
                    wait_seconds = await self._after_failure()
                await is_set_within(self._wake, wait_seconds)
            await self._clean_up()
            await expire_due(store=self._store, runtime=self._runtime, besides=self._uid)
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)
            if self._diagnoser is not None:
                await self._diagnoser.close()
        return self.ledger.job.state

    # before the first decision -----------------------------------------------------------------
    def _load(self) -> None:
        record = self._store.run(self._uid)
        if record is None:
            raise LeaseLost(f"run {self._uid} is not in the store any more")
        self._job = self._store.job(self._uid)
        self.ledger = self._store.ledger(self._uid)
        if self.ledger.job.state in TERMINAL_JOB_STATES and self.ledger.job.drained:
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
        )
        self._resources = role_resources(self._job)
        self._watcher = Watcher(self._runtime, self._run, on_change=self._wake.set)
        if self._job.plan is not None:
            self._follow_plan()
        if self._job.checkpoint is not None:
            self._follow_checkpoints()
        self._read_requests()

    def _read_requests(self) -> None:
        seen = self.ledger.job.seen_request
        self._requests = tuple(self._store.requests(self._uid, after=seen))
        if self._requests:
            self._last_request = max(self._last_request, self._requests[-1].id)

    async def _wait_in_queue(self) -> None:
        """Return when it is the run's turn, or when it was killed while it waited."""
        turn = Turn(
            store=self._store,
            runtime=self._runtime,
            job=self._job,
            uid=self._uid,
            max_running_jobs=self._max_running_jobs,
        )
        while not any(request.kind == "stop" for request in self._requests):
            self._wake.clear()
            try:
                if await turn.has_come():
                    return
                if self.ledger.job.state != "Queued":
                    ledger, events = queued(self.ledger, now=self._now())
                    await self._commit(ledger, events)
                    self._tell(events)
            except LeaseLost:
                raise
            except Exception:
                log.warning("queue not readable; trying again", exc_info=True)
            await is_set_within(self._wake, turn.poll_seconds())
            await retrying(self._read_requests)
        # from here on it can only end: nothing may start it, whoever holds the lease next
        await retrying(lambda: self._store.tombstone(self._uid, reason="Killed"))

    async def _prepare(self) -> bool:
        """Fix the addresses; return False while the runtime does not answer."""
        await self._keeper.confirm()
        prepared = True
        try:
            addresses = await self._runtime.prepare(self._run, self._job)
        except RuntimeUnavailable as error:
            self._unreachable(error)
            return False
        except InputError as error:
            # an instance that cannot be created is a failure like any other, with its limits
            log.warning("run %s could not be prepared: %s", self._uid, error)
            addresses, prepared = expected_addresses(self._job, self._run.prefix), False
        await self._store_addresses(addresses)
        self._effects = Effects(
            runtime=self._runtime,
            run=self._run,
            job=self._job,
            addresses=addresses,
            keeper=self._keeper,
            prepared=prepared,
        )
        return True

    async def _store_addresses(self, addresses: Addresses) -> None:
        await self._keeper.confirm()
        stored = {
            role: [{"host": each.host, "ports": dict(each.ports)} for each in team]
            for role, team in addresses.items()
        }
        await asyncio.to_thread(self._store.set_addresses, self._uid, stored)

    # one pass ----------------------------------------------------------------------------------
    async def _pass(self) -> tuple[Decision, float]:
        """Decide, persist, act, tell; return the decision and seconds until the next pass."""
        await self._keeper.confirm()
        if self._last_request > self.ledger.job.seen_request:
            await asyncio.to_thread(self._read_requests)
        seen = await self._records.add(self._watcher.look())
        diagnoses = await self._diagnoses(seen)
        committed: Sequence[Mapping[str, Any]] = ()
        if self._committed is not None:
            await self._committed.before_decision(self._watcher.instances)
            committed = self._committed.take()
        decision = decide(
            self._job,
            self.ledger,
            self._requests,
            seen,
            self._now(),
            generation=self._keeper.lease.generation,
            diagnoses=diagnoses,
            committed=committed,
        )
        if decision.done and not self.ledger.job.drained:
            decision = await self._with_root_cause(decision)
        await self._save_output()
        await self._commit(decision.new_ledger, decision.events)
        if self._diagnoser is not None:
            self._diagnoser.taken_in(diagnoses)
        if self._committed is not None:
            self._committed.taken_in(committed)
        retry_seconds = await self._act(decision)
        self._tell(decision.events)
        await self._follow_cluster()
        now = self._now()
        wake_at = min(decision.wake_at or float("inf"), now + self._job.reconcile_seconds)
        wait_seconds = max(wake_at - now, _SHORTEST_WAIT_SECONDS)
        return decision, min(wait_seconds, retry_seconds)

    async def _commit(
        self, ledger: Ledger, events: Sequence[Event], *, job: ResolvedJob | None = None
    ) -> None:
        if events or ledger is not self.ledger:
            await asyncio.to_thread(
                self._store.commit,
                self._uid,
                lease=self._keeper.lease,
                old=with_short_lives(self.ledger, ledger, self._watcher.instances),
                new=ledger,
                events=events,
                resources=self._resources,
                job=job,
            )
            self.ledger = ledger
            self._hub.poke(self._uid)

    async def _act(self, decision: Decision) -> float:
        """Return seconds after which a refused action is to be tried again (infinite: none)."""
        if self._effects is None:
            return retry_delay(self._failures)
        actions = [
            action
            for action in decision.actions
            if not (isinstance(action, Delete) and self._watcher.forget(action.uid))
        ]
        if not actions:
            return float("inf")
        addresses = self._effects.addresses
        try:
            performed = await self._effects.perform(
                actions,
                ledger=decision.new_ledger,
                seen=self._watcher.instances,
                now=self._now(),
            )
        except RuntimeUnavailable as error:
            return self._unreachable(error)
        if self._effects.addresses is not addresses:  # a role was scaled beyond what was known
            await self._store_addresses(self._effects.addresses)
        for outcome in performed.failed:
            self._watcher.imagine(never_created(outcome, now=self._now()))
        if not performed.refused:
            self._failures = 0
            return float("inf")
        self._failures += 1
        if self._failures == _PATIENT_REFUSALS:
            for outcome in performed.refused:
                name = f"{outcome.ref.role}-{outcome.ref.index}"
                log.warning(
                    "run %s: %s cannot be created yet: %s", self._uid, name, outcome.message
                )
        return retry_delay(min(self._failures, 4))

    def _tell(self, events: Sequence[Event]) -> None:
        if self._on_event is not None:
            for event in events:
                self._on_event(event)

    def _unreachable(self, error: RuntimeUnavailable) -> float:
        """Take note that the runtime does not answer; return seconds until the next try."""
        log.warning("runtime of run %s unreachable: %s", self._uid, error)
        self._watcher.distrust()
        self._failures += 1
        return retry_delay(self._failures)

    async def _after_failure(self) -> float:
        """Read all again, as nobody knows what a broken pass has written; return a delay."""
        self._failures += 1
        self.ledger, job = await retrying(self._stored)
        if job != self._job:
            self._go_on_as(job)
        await retrying(self._read_requests)
        return retry_delay(self._failures)

    def _stored(self) -> tuple[Ledger, ResolvedJob]:
        stored = self._store.read([self._uid])[self._uid]
        return stored.ledger, stored.job

    def _now(self) -> float:
        """Return the time of day, never earlier than the last time this was asked."""
        self._clock = max(self._clock, time.time())
        return self._clock

    # why it failed -------------------------------------------------------------------------------
    async def _diagnoses(self, seen: Observations | None) -> Sequence[Diagnosed]:
        """Return why attempts failed: of those that did just now as far as a moment allows."""
        if seen is not None and any(each.state == "failed" for each in seen.instances):
            await self._make_diagnoser().ask(self.ledger, seen.instances, self.progress)
        return () if self._diagnoser is None else self._diagnoser.answers

    async def _with_root_cause(self, decision: Decision) -> Decision:
        """Return the last decision of a failed job with what its logs say."""
        ledger = decision.new_ledger
        known = ledger.job.root_cause
        if ledger.job.state != "Failed" or known is None:
            return decision
        found = await self._make_diagnoser().root_cause(ledger)
        if found is None:
            return decision
        cause = with_diagnosis(known, found)
        job = dataclasses.replace(ledger.job, root_cause=cause)
        told = Event(
            at=self._now(),
            reason=reasons.ROOT_CAUSE,
            message=proof_of(cause),
            role=cause["role"] or "",
            index=cause["index"],
            attempt=cause["attempt"],
            level="error",
        )
        return dataclasses.replace(
            decision,
            new_ledger=dataclasses.replace(ledger, job=job),
            events=(*([told] if told.message else []), *decision.events),
        )

    def _make_diagnoser(self) -> Diagnoser:
        if self._diagnoser is None:
            from airflow_training.supervise.diagnosing import (
                Diagnoser,  # only where something fails
            )

            self._diagnoser = Diagnoser(
                runtime=self._runtime, run=self._run, job=self._job, on_answer=self._wake.set
            )
        return self._diagnoser

    # checkpoints ---------------------------------------------------------------------------------
    def _follow_checkpoints(self) -> None:
        from airflow_training.supervise.checkpointing import Committed
        from airflow_training.supervise.processes import Processes

        self._committed = Committed(
            run=self._run,
            state=lambda: (self._job, self.ledger),
            on_news=self._wake.set,
        )
        self._processes = Processes(
            store=self._store,
            uid=self._uid,
            state=lambda: (self._job, self.ledger),
            instances=lambda: self._watcher.instances,
            root=self._committed.root_of,
            on_progress=self._committed.progressed,
        )

    async def _resume_processes(self, processes: Processes) -> None:
        """Begin with what the holder before knew of them; step back where nobody can check it."""
        found = await processes.resume(now=self._now())
        if not found.events:
            return
        ledger = self.ledger
        if found.not_after is not None:
            job = not_after(ledger.job, found.not_after)
            ledger = dataclasses.replace(ledger, job=job)
        await self._commit(ledger, found.events)
        self._tell(found.events)

    # a plan: measured, and following its cluster ---------------------------------------------------
    def _follow_plan(self) -> None:
        from airflow_training.supervise.measuring import Meter
        from airflow_training.supervise.plan_history import history_of  # numpy: only with a plan
        from airflow_training.supervise.replanning import Replanner

        self._meter = Meter(
            store=self._store, uid=self._uid, state=lambda: (self._job, self.ledger)
        )
        self._replanner = Replanner.of(
            self._job,
            runtime=self._runtime,
            history=history_of(self._store),
            state=self._state,
            on_answer=self._wake.set,
        )

    def _state(self) -> State | None:
        """Return what the planner needs to know; None before anything could be created."""
        from airflow_training.supervise.replanning import State

        if self._effects is None or self._meter is None:
            return None
        progress = {**self._meter.progress, **self.progress}
        return State(job=self._job, ledger=self.ledger, progress=progress)

    async def _follow_cluster(self) -> None:
        """Do what the planner said, if it did: store the new job with its attempt, and go on as it.

        What lives of the old split is stale from then on, whoever holds the lease next.
        """
        if self._replanner is None:
            return
        state = self._state()
        if state is None:
            return
        change = self._replanner.change(
            state, now=self._now(), generation=self._keeper.lease.generation
        )
        if change is not None:
            await self._commit(change.ledger, change.events, job=change.job)
            if change.job is not None:
                self._go_on_as(change.job)
            self._tell(change.events)

    def _go_on_as(self, job: ResolvedJob) -> None:
        self._job = job
        self._resources = role_resources(job)
        if self._effects is not None:
            self._effects.go_on_as(job)
        self._wake.set()

    # beside the decisions ------------------------------------------------------------------------
    async def _save_progress(self) -> None:
        """Bring what the scripts say to the store, at most once a second."""
        while True:
            await self._watcher.progressed.wait()
            await self._flush_progress()
            await asyncio.sleep(_PROGRESS_SECONDS)

    async def _flush_progress(self) -> None:
        fresh = self._watcher.take_progress()
        if fresh:
            self._reporting |= fresh.keys()
            self.progress.update(fresh)
            if self._committed is not None:
                self._committed.progressed(fresh)
            if self._follower is not None:
                self._follower.reported(fresh)
            rows = {key: dataclasses.asdict(progress) for key, progress in fresh.items()}
            await retrying(lambda: self._store.save_progress(self._uid, rows))
        environment = self._watcher.take_environment()
        if environment:
            await retrying(lambda: self._store.save_environment(self._uid, environment))

    async def _follow_logs(self) -> None:
        """Bring what logs say to the store, once the run is older than most failures to start."""
        await asyncio.sleep(_LOG_SECONDS)
        from airflow_training.supervise.log_following import LogFollower

        self._follower = LogFollower(
            store=self._store,
            runtime=self._runtime,
            run=self._run,
            patterns=self._job.log_patterns,
            ledger=lambda: self.ledger,
            now=self._now,
            on_progress=self._read_in_log,
        )
        self._follower.reported(self.progress)
        await self._follower.run()

    def _read_in_log(self, key: InstanceKey, progress: Progress) -> None:
        if key not in self._reporting:
            self.progress[key] = progress

    async def _save_output(self) -> None:
        """Record what the output role uploaded; before its end is, so that no crash loses it."""
        if self._output_saved:
            return
        for each in self._watcher.instances:
            if each.output and (each.role, each.index) == (self._job.output_role, 0):
                await asyncio.to_thread(self._store.set_output, self._uid, each.output)
                self._output_saved = True

    async def _clean_up(self) -> None:
        """Leave behind what `cleanPodPolicy` says; nothing of the run is alive any more."""
        await self._flush_progress()
        if self._follower is not None:
            await self._follower.finish()
        if self._meter is not None:
            await self._meter.look()
        if self._processes is not None:
            await self._processes.look()
        if self._job.clean_pod_policy != "All" and not self._runtime.capabilities.leaves_objects:
            return
        for failures in range(1, _REMOVE_TRIES + 1):
            await self._keeper.confirm()
            try:
                await self._runtime.remove(self._run)
            except (RuntimeUnavailable, StillAlive) as error:
                log.warning("leftovers of run %s not removed: %s", self._uid, error)
                await asyncio.sleep(retry_delay(failures))
            else:
                return

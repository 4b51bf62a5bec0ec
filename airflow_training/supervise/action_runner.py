"""Carries out what one holder decides about its run, and takes note of what the runtime refuses.

`effects` says how an action becomes a call; this says when: once the run is prepared, and how soon again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from airflow_training.control.actions import Create, Delete
from airflow_training.control.model import Decision, Ledger
from airflow_training.control.observations import RefusedAttempt
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, RefusedForNow, RuntimeUnavailable, StillAlive
from airflow_training.runtimes.port import Addresses, Runtime
from airflow_training.runtimes.rendering import expected_addresses
from airflow_training.state.store import Store
from airflow_training.supervise.effects import Effects, never_created
from airflow_training.supervise.followers.node_faults import excluded_nodes
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.refusals import Refusals
from airflow_training.supervise.retrying import retry_delay
from airflow_training.supervise.run_clock import RunClock
from airflow_training.supervise.watcher import Watcher

__all__ = ["ActionRunner"]

log = logging.getLogger(__name__)

_REMOVE_TRIES = 8


class ActionRunner:
    """Acts on one run under one lease, as its decisions say."""

    def __init__(
        self,
        *,
        store: Store,
        runtime: Runtime,
        keeper: LeaseKeeper,
        clock: RunClock,
        is_halted: Callable[[], bool],
    ) -> None:
        """`is_halted`: whether the run is being stopped, so that nothing may begin any more."""
        self._store = store
        self._runtime = runtime
        self._keeper = keeper
        self._uid = keeper.lease.run
        self._clock = clock
        self._is_halted = is_halted
        self._watcher: Watcher | None = None
        self._effects: Effects | None = None
        self._failures = 0
        """In a row."""
        self._refusals = Refusals()
        self._unprepared = ""
        self._unanswered = ""

    def take_unprepared(self) -> str:
        """Return why what all instances need can never be made, once: whoever goes on all the same asks anew."""
        taken, self._unprepared = self._unprepared, ""
        return taken

    @property
    def refused(self) -> Sequence[RefusedAttempt]:
        """Return the attempts that the runtime does not make for now."""
        return self._refusals.known

    @property
    def is_prepared(self) -> bool:
        """Return whether anything can have been made by this holder."""
        return self._effects is not None

    @property
    def is_unanswered(self) -> bool:
        """Whether the runtime does not answer: to who prepares the run, and then to who watches it."""
        if self._watcher is None or not self.is_prepared:
            return self._failures > 0
        return not self._watcher.answers

    @property
    def unanswered(self) -> str:
        """Why the runtime does not answer whoever prepares the run; "" where it does, or nobody has asked."""
        return "" if self.is_prepared else self._unanswered

    def room_made(self) -> None:
        """Ask again now for what was refused for now."""
        self._refusals.room_made(now=self._clock.now())

    async def prepare(
        self, run: RunRef, job: ResolvedJob, ledger: Ledger, *, watcher: Watcher
    ) -> bool:
        """Fix the addresses; return False while the runtime does not answer."""
        self._watcher = watcher
        await self._keeper.confirm()
        prepared = True
        attempt = ledger.job.first_attempt
        try:
            addresses = await self._runtime.prepare(run, job, attempt=attempt)
        except RefusedForNow:  # its creates are told so, one by one
            addresses, prepared = expected_addresses(job, run.prefix), False
        except RuntimeUnavailable as error:
            self._unanswered = str(error)
            self._unreachable(error)
            return False
        except InputError as error:
            self._unprepared = str(error)
            addresses, prepared = expected_addresses(job, run.prefix), False
        await self._store_addresses(addresses)
        self._effects = Effects(
            runtime=self._runtime,
            run=run,
            job=job,
            addresses=addresses,
            prepared_for=attempt,
            keeper=self._keeper,
            prepared=prepared,
            is_halted=self._is_halted,
        )
        return True

    async def _store_addresses(self, addresses: Addresses) -> None:
        await self._keeper.confirm()
        stored = {
            role: [{"host": each.host, "ports": dict(each.ports)} for each in team]
            for role, team in addresses.items()
        }
        await asyncio.to_thread(self._store.addresses.fix, self._uid, stored)

    def adopt_job(self, job: ResolvedJob) -> None:
        """Create what comes from another resolved job."""
        self._unprepared = ""
        if self._effects is not None:
            self._effects.adopt_job(job)

    async def act(self, decision: Decision) -> float:
        """Return seconds after which a refused action is to be tried again (infinite: none)."""
        if self._effects is None or self._watcher is None:
            return retry_delay(self._failures)
        now = self._clock.now()
        actions = [
            action
            for action in self._refusals.due(decision.actions, now=now)
            if not (isinstance(action, Delete) and self._watcher.forget(action.uid))
        ]
        if not actions:
            return self._refusals.seconds_left(now=now)
        if any(isinstance(each, Create) for each in actions):
            self._effects.excluded_nodes = await excluded_nodes(
                self._store, self._runtime, self._effects.job
            )
        addresses = self._effects.addresses
        try:
            performed = await self._effects.perform(
                actions,
                ledger=decision.new_ledger,
                seen=self._watcher.instances,
                now=now,
            )
        except RuntimeUnavailable as error:
            return self._unreachable(error)
        if self._effects.addresses is not addresses:  # a role was scaled beyond what was known
            await self._store_addresses(self._effects.addresses)
        news = self._refusals.note(actions, performed.refused, now=now)
        for outcome in (*performed.failed, *self._refusals.take_final(now=now)):
            self._watcher.imagine(never_created(outcome, now=self._clock.now()))
        self._failures = 0
        self._unprepared = performed.unprepared
        if news or self._unprepared:
            return 0.0  # the next decision tells of it
        return self._refusals.seconds_left(now=now)

    async def end(self, decision: Decision) -> bool:
        """End what a decision ends, without asking for the lease; return whether nothing is left to end."""
        if self._effects is None or self._watcher is None:
            return True
        if decision.done and not self._effects.creating:
            return True
        try:
            await self._effects.end(
                decision.actions, ledger=decision.new_ledger, seen=self._watcher.instances
            )
        except RuntimeUnavailable as error:
            self._unreachable(error)
        return False

    async def remove(self, run: RunRef) -> None:
        """Leave behind what `cleanPodPolicy` says; nothing of the run is alive any more."""
        for failures in range(1, _REMOVE_TRIES + 1):
            await self._keeper.confirm()
            try:
                await self._runtime.remove(run)
            except (RuntimeUnavailable, StillAlive) as error:
                log.warning("leftovers of run %s not removed: %s", run.uid, error)
                await self._clock.sleep(retry_delay(failures))
            else:
                return

    def _unreachable(self, error: RuntimeUnavailable) -> float:
        """Take note that the runtime does not do what it is told; return seconds until the next try."""
        log.warning("runtime of run %s unreachable: %s", self._uid, error)
        delay = self.count_failure()
        if self._watcher is not None:
            self._watcher.distrust(failures=self._failures)
        return delay

    def count_failure(self) -> float:
        """Take note of something that went wrong; return seconds until the next try."""
        self._failures += 1
        return retry_delay(self._failures)

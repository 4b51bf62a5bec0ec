"""Holds one run's lease: takes it, knows whether it is still good, and says so when it is lost.

Renewal itself is batched for all leases of a process in `hub`; effects ask `check()` right before
they happen.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import LeaseLost, StillAlive
from airflow_training.runtimes.clock import steady_now
from airflow_training.state.records import Driver
from airflow_training.state.store import Lease, RunRecord, Store
from airflow_training.supervise.absences import Absence
from airflow_training.supervise.owners import (
    LEASE_SECONDS,
    forget_owner,
    is_provably_dead,
    new_owner,
)

__all__ = ["LEASE_SECONDS", "LeaseKeeper", "holding", "take_lease"]

_POLL_SECONDS = 0.5
_STALLED = "the process that drives it was stopped, or its machine slept"
_STORE_AWAY = "the store did not answer whoever drives it in time"


def take_lease(
    store: Store,
    uid: str,
    *,
    owner: str,
    seconds: float = LEASE_SECONDS,
    driver: Driver | None = None,
) -> Lease | None:
    """Take the run's lease, at once where its holder is provably dead; None while one lives.

    `driver`: who holds it, where the caller has just read that.
    """
    held = (driver or store.driver(uid)).owner
    dead = [held] if is_provably_dead(held) else []
    return store.acquire(uid, owner=owner, seconds=seconds, dead_owners=dead)


@contextlib.asynccontextmanager
async def holding(
    record: RunRecord, *, store: Store, timeout_seconds: float = 0.0
) -> AsyncIterator[RunRef]:
    """Hold a run's lease for a short while, unrenewed; yield the run under it.

    Raises StillAlive where another holder keeps it for longer than `timeout_seconds`.
    """
    owner = new_owner()
    try:
        lease = await asyncio.to_thread(take_lease, store, record.uid, owner=owner)
        for _ in range(int(timeout_seconds / _POLL_SECONDS)):
            if lease is not None:
                break
            await asyncio.sleep(_POLL_SECONDS)
            lease = await asyncio.to_thread(take_lease, store, record.uid, owner=owner)
        if lease is None:
            raise StillAlive(f"run {record.uid}: another holder keeps its lease")
        try:
            yield record.ref(generation=lease.generation)
        finally:
            await asyncio.to_thread(store.release, lease)
    finally:
        forget_owner(owner)


class LeaseKeeper:
    """A lease that is being renewed. `lost` is set as soon as another holder is known."""

    def __init__(
        self,
        lease: Lease,
        *,
        seconds: float = LEASE_SECONDS,
        taken_at: float,
        absence: Absence | None = None,
    ) -> None:
        """`taken_at`: `steady_now()` from before the lease was asked for, never after.

        `absence`: of a run that nobody has driven until now.
        """
        self.lease = lease
        self.seconds = seconds
        self.lost = asyncio.Event()
        self._answered = asyncio.Event()
        self._good_until = taken_at + seconds
        self._answered_at = steady_now()
        self._answer_seconds = self._answered_at - taken_at
        self._absence = absence
        self._refused = False

    def renewed(self, lease: Lease | None, *, asked_at: float) -> None:
        """Take the answer of a renewal: the new lease, or None where another holder owns it."""
        if lease is None:
            self.lost.set()
        else:
            if asked_at > self._good_until and self._absence is None:
                # a stall lies between an answer and the next question
                slow = self._refused or self._answer_seconds > asked_at - self._answered_at
                why = _STORE_AWAY if slow else _STALLED
                since = self.lease.expires_at - self.seconds
                self._absence = Absence(since=since, why=why, stalled=True)
            self._refused = False
            self.lease = lease
            self._good_until = asked_at + self.seconds
            self._answered_at = steady_now()
            self._answer_seconds = self._answered_at - asked_at
        self._answered.set()

    def not_renewed(self) -> None:
        """Hear that the store did not take a renewal."""
        self._refused = True

    def take_absence(self) -> Absence | None:
        """Return, once, that nobody drove the run until a while ago: a driver was lost, or this one stalled."""
        taken, self._absence = self._absence, None
        return taken

    @property
    def good(self) -> bool:
        """Return whether nobody else can hold the run now, by our own steady clock."""
        return not self.lost.is_set() and steady_now() < self._good_until

    async def confirm(self) -> None:
        """Return when the lease is good, right before acting; raise LeaseLost when it is lost.

        A holder that was stalled (SIGSTOP, a sleeping laptop) or cut off from the store waits
        here for the next renewal, which tells whether somebody else has taken over meanwhile.
        """
        while not self.good:
            if self.lost.is_set():
                raise LeaseLost(f"run {self.lease.run}: generation {self.lease.generation} is over")
            self._answered.clear()
            await self._answered.wait()

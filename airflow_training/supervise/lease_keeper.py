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
from airflow_training.state.store import Lease, RunRecord, Store
from airflow_training.supervise.owners import forget_owner, is_provably_dead, new_owner

__all__ = ["LEASE_SECONDS", "LeaseKeeper", "holding", "take_lease"]

LEASE_SECONDS = 15.0
_POLL_SECONDS = 0.5


def take_lease(
    store: Store, uid: str, *, owner: str, seconds: float = LEASE_SECONDS
) -> Lease | None:
    """Take the run's lease, at once where its holder is provably dead; None while one lives."""
    held = store.lease(uid)
    dead = [held.owner] if held is not None and is_provably_dead(held.owner) else []
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

    def __init__(self, lease: Lease, *, seconds: float = LEASE_SECONDS, taken_at: float) -> None:
        """`taken_at`: `steady_now()` from before the lease was asked for, never after."""
        self.lease = lease
        self.seconds = seconds
        self.lost = asyncio.Event()
        self._answered = asyncio.Event()
        self._good_until = taken_at + seconds

    def renewed(self, lease: Lease | None, *, asked_at: float) -> None:
        """Take the answer of a renewal: the new lease, or None where another holder owns it."""
        if lease is None:
            self.lost.set()
        else:
            self.lease = lease
            self._good_until = asked_at + self.seconds
        self._answered.set()

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

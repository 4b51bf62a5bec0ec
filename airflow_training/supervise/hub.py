"""One shared, batched reader of the store per event loop: changes of runs, and lease renewals.

However many supervisors, role tasks and sensors live in a process, the store sees one small query
every `poll_seconds` and one renewal transaction every few seconds, both off the event loop.
Signals inside the process (`notify`) only make it faster; the store is the truth.

    hub = get_hub(store)
    async with hub.subscription(uid) as sub:
        while True:
            state = await sub.next()      # the first at once, then whenever the run changed
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from airflow_training.runtimes.clock import steady_now
from airflow_training.state.store import Lease, RunState, Store, Version
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.waiting import is_set_within

__all__ = ["Hub", "Subscription", "get_hub"]

T = TypeVar("T")

POLL_SECONDS = 2.0
_COALESCE_SECONDS = 0.02
"""Pokes that come closer together than this share one read."""

_hubs: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, Hub]] = WeakKeyDictionary()


def get_hub(store: Store, *, poll_seconds: float = POLL_SECONDS) -> Hub:
    """Return the hub of the running event loop for this store; the first caller sets the pace."""
    hubs = _hubs.setdefault(asyncio.get_running_loop(), {})
    hub = hubs.get(store.url)
    if hub is None:
        hub = hubs[store.url] = Hub(store, poll_seconds=poll_seconds)
    return hub


class Subscription:
    """What one reader has seen of one run. Made by `Hub.subscription`."""

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.state: RunState | None = None
        """The newest state that was read; None where the store has no such run."""
        self._fresh = asyncio.Event()
        self._seen: Version | None = None
        self._read_once = False

    async def next(self) -> RunState | None:
        """Return the run's state when it differs from the last one returned; at once at first.

        None where the store has no such run (any more). Changes in between are merged: what
        comes back is always the newest. A lease that runs out counts as a change. For a timeout
        use `changed_within`: `asyncio.wait_for` swallows cancellations before Python 3.12.
        """
        await self._fresh.wait()
        self._fresh.clear()
        return self.state

    async def changed_within(self, seconds: float) -> bool:
        """Return whether `next` has something to give, waiting at most so long."""
        return await is_set_within(self._fresh, seconds)

    async def __aiter__(self) -> AsyncIterator[RunState | None]:
        while True:
            yield await self.next()

    def stale(self, version: Version | None) -> bool:
        """Return whether the run has moved on from what this reader was given."""
        return not self._read_once or version != self._seen

    def deliver(self, version: Version | None, state: RunState | None) -> None:
        """Hand the reader a newer state."""
        self._seen, self.state, self._read_once = version, state, True
        self._fresh.set()


class Hub:
    """Shared by everything in one event loop that waits for runs of one store."""

    def __init__(self, store: Store, *, poll_seconds: float = POLL_SECONDS) -> None:
        self.store = store
        self.poll_seconds = poll_seconds
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._followers: dict[str, list[Callable[[Version], None]]] = {}
        self._keepers: list[LeaseKeeper] = []
        self._poked: set[str] = set()
        self._wake = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        # Threads of their own: asyncio's few shared ones may all wait for processes to end or for
        # SQLite's one writer, and a lease must not run out, nor a sensor miss its moment, for that.
        # Two, so that renewals never queue behind slow reads either.
        self._lease_thread = ThreadPoolExecutor(1, thread_name_prefix="training-lease")
        self._read_thread = ThreadPoolExecutor(1, thread_name_prefix="training-read")

    # readers ---------------------------------------------------------------------------------
    @contextlib.asynccontextmanager
    async def subscription(self, uid: str) -> AsyncIterator[Subscription]:
        """Watch one run; see `Subscription.next`."""
        sub = Subscription(uid)
        self._subscriptions.setdefault(uid, []).append(sub)
        self.notify(uid)
        try:
            yield sub
        finally:
            _discard(self._subscriptions, uid, sub)

    @contextlib.contextmanager
    def following(self, uid: str, on_change: Callable[[Version], None]) -> Iterator[None]:
        """Call `on_change` on this loop with each new version of the run (cheap: no full read)."""
        self._followers.setdefault(uid, []).append(on_change)
        self.notify(uid)
        try:
            yield
        finally:
            _discard(self._followers, uid, on_change)

    def notify(self, uid: str) -> None:
        """Look at this run in the store now; only a hint, from this event loop."""
        if uid in self._subscriptions or uid in self._followers:
            self._poked.add(uid)
            self._wake.set()
            self._ensure("reads", self._reads)

    async def now(self) -> float:
        """Return the store's clock."""
        return await self._reading(self.store.now)

    async def _reading(self, question: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._read_thread, question)

    # leases ----------------------------------------------------------------------------------
    @contextlib.contextmanager
    def keeping(self, keeper: LeaseKeeper) -> Iterator[None]:
        """Renew this lease every third of its time, together with all others of the loop."""
        self._keepers.append(keeper)
        self._ensure("renewals", self._renewals)
        try:
            yield
        finally:
            self._keepers.remove(keeper)

    async def _renewals(self) -> None:
        loop = asyncio.get_running_loop()
        while self._keepers:
            await asyncio.sleep(min(keeper.seconds for keeper in self._keepers) / 3)
            keepers = [keeper for keeper in self._keepers if not keeper.lost.is_set()]
            if not keepers:
                continue
            asked_at = steady_now()
            try:
                answers = await loop.run_in_executor(
                    self._lease_thread, _renew, self.store, keepers
                )
            except Exception as error:  # noqa: BLE001  # told there; the next renewal may go through
                self.store.outage.record_failure(error)
                for keeper in keepers:
                    keeper.not_renewed()
                continue
            for keeper, answer in zip(keepers, answers, strict=True):
                keeper.renewed(answer, asked_at=asked_at)

    # the one batched read --------------------------------------------------------------------
    async def _reads(self) -> None:
        seen: dict[str, Version | None] = {}
        everything_at = 0.0
        while self._subscriptions or self._followers:
            wait = everything_at - steady_now()
            if wait > 0 and not self._poked:
                self._wake.clear()
                await is_set_within(self._wake, wait)
                await asyncio.sleep(_COALESCE_SECONDS)
            if steady_now() >= everything_at:
                uids = sorted({*self._subscriptions, *self._followers})
                everything_at = steady_now() + self.poll_seconds
            else:
                uids = sorted(self._poked)
            self._poked.difference_update(uids)
            try:
                await self._read(uids, seen)
            except Exception as error:  # noqa: BLE001  # told there; readers wait for the next look
                self.store.outage.record_failure(error)
                everything_at = steady_now() + self.poll_seconds
                self._poked.clear()

    async def _read(self, uids: Sequence[str], seen: dict[str, Version | None]) -> None:
        versions = await self._reading(partial(self.store.versions, uids))
        for uid in uids:
            version = versions.get(uid)
            if version is not None and (uid not in seen or seen[uid] != version):
                for on_change in tuple(self._followers.get(uid, ())):
                    on_change(version)
            seen[uid] = version
        behind = [
            uid
            for uid in uids
            if any(sub.stale(versions.get(uid)) for sub in self._subscriptions.get(uid, ()))
        ]
        if not behind:
            return
        states = await self._reading(partial(self.store.read, behind))
        for uid in behind:
            for sub in self._subscriptions.get(uid, ()):
                if sub.stale(versions.get(uid)):
                    sub.deliver(versions.get(uid), states.get(uid))

    def _ensure(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            # an empty context: log lines of a shared task belong to no single caller's log
            self._tasks[name] = contextvars.Context().run(
                asyncio.get_running_loop().create_task, work()
            )


def _renew(store: Store, keepers: Sequence[LeaseKeeper]) -> Sequence[Lease | None]:
    answers: dict[str, Lease | None] = {}
    for seconds in {keeper.seconds for keeper in keepers}:
        leases = [keeper.lease for keeper in keepers if keeper.seconds == seconds]
        renewed = store.renew_all(leases, seconds=seconds)
        answers.update(zip((_lease_id(lease) for lease in leases), renewed, strict=True))
    return [answers[_lease_id(keeper.lease)] for keeper in keepers]


def _lease_id(lease: Lease) -> str:
    return f"{lease.run}/{lease.generation}"


def _discard(table: dict[str, list[T]], uid: str, value: T) -> None:
    table[uid].remove(value)
    if not table[uid]:
        del table[uid]

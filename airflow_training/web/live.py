"""Runs as they change: one look at the store per second and process, whoever many pages follow them.

`supervise.hub` tells changes of ledgers to those who act on them; pages also show how far each
instance is, which no version counts.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import json
import logging
import signal
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from airflow_training.errors import TrainingError
from airflow_training.state.store import Store
from airflow_training.supervise.waiting import is_set_within
from airflow_training.web.details import load_detail, usage_of
from airflow_training.web.models import ACTIONS, Detail

__all__ = ["DetailSnapshot", "RunFeed", "RunFeeds", "feeds_of"]

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0

_feeds: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, RunFeeds]] = WeakKeyDictionary()


def feeds_of(store: Store) -> RunFeeds:
    """Return the feeds of the running event loop for this store."""
    feeds = _feeds.setdefault(asyncio.get_running_loop(), {})
    return feeds.setdefault(store.url, RunFeeds(store))


@dataclass(frozen=True)
class DetailSnapshot:
    """A run as of one look, which all who follow it share."""

    id: str
    """Equal for what looks the same, whichever process looked."""
    detail: Detail
    """With all actions that make sense, whoever may do them."""

    @functools.cached_property
    def for_actors(self) -> str:
        """Return the detail as JSON for who may act on the run."""
        return self.detail.model_dump_json()

    @functools.cached_property
    def for_readers(self) -> str:
        """The snapshot for users who may only read."""
        return self.detail.model_copy(update={"actions": []}).model_dump_json()


@dataclass
class RunFeed:
    """The newest look at one run, for all who follow it."""

    readers: int = 0
    newest: DetailSnapshot | None = None
    """None: nobody has looked yet."""
    over: bool = False
    """The run is gone, or the server ends: nothing comes any more."""
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once, by the next change; then another one takes its place."""

    def publish(self) -> None:
        """Wake all who wait for a change."""
        self.changed.set()
        self.changed = asyncio.Event()

    async def changed_within(self, seconds: float) -> bool:
        """Return whether something changes within so long."""
        return await is_set_within(self.changed, seconds)


class RunFeeds:
    """The feeds of one server, on its event loop. They begin with the first reader, and end with the last."""

    def __init__(self, store: Store, *, poll_seconds: float = POLL_SECONDS) -> None:
        self._store = store
        self._poll_seconds = poll_seconds
        self._feeds: dict[str, RunFeed] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()

    @contextlib.asynccontextmanager
    async def following(self, uid: str) -> AsyncIterator[RunFeed]:
        """Open the feed of a run, which others may have open too."""
        feed = self._feeds.get(uid)
        if feed is None:
            feed = self._feeds[uid] = RunFeed()
            self._wake.set()
        feed.readers += 1
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._poll())
        try:
            yield feed
        finally:
            feed.readers -= 1
            if not feed.readers:
                del self._feeds[uid]

    async def _poll(self) -> None:
        while self._feeds:
            self._wake.clear()
            known = {
                uid: "" if feed.newest is None else feed.newest.id
                for uid, feed in self._feeds.items()
            }
            try:
                self._deliver(await asyncio.to_thread(_load_details, self._store, known))
            except TrainingError as error:  # the store is away: the next look may go through
                log.info("no look at the runs that pages follow: %s", error)
            except Exception:  # what one run has must not keep others from being seen
                log.exception("no look at the runs that pages follow")
            if _server_ends():
                for feed in self._feeds.values():
                    feed.over = True
                    feed.publish()
            await is_set_within(self._wake, self._poll_seconds)

    def _deliver(self, found: Mapping[str, DetailSnapshot | None]) -> None:
        for uid, snapshot in found.items():
            feed = self._feeds.get(uid)
            if feed is not None:
                feed.newest = snapshot or feed.newest
                feed.over = snapshot is None
                feed.publish()


def _load_details(store: Store, known: Mapping[str, str]) -> Mapping[str, DetailSnapshot | None]:
    """Return the runs that do not look as they did; None for one that is gone. Blocks."""
    versions = store.versions([*known])
    found: dict[str, DetailSnapshot | None] = {}
    for uid, seen in known.items():
        if uid not in versions:
            found[uid] = None
            continue
        lines = [[*key, str(report)] for key, report in store.progress.newest(uid).items()]
        positions = [[*key, str(at)] for key, at in store.log_values.positions(uid).items()]
        looks = [[*key, each.at] for key, each in usage_of(store).of(uid).items()]
        text = json.dumps([str(versions[uid]), lines, positions, looks], sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        if digest != seen:
            detail = load_detail(store, uid, allowed=ACTIONS)
            found[uid] = None if detail is None else DetailSnapshot(id=digest, detail=detail)
    return found


def _server_ends() -> bool:
    """Return whether uvicorn was told to end: it waits for every answer first, streams too."""
    handler = signal.getsignal(signal.SIGTERM)
    return bool(getattr(getattr(handler, "__self__", None), "should_exit", False))

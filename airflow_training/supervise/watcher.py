"""What is alive, as the runtime tells it: one watch per run that survives an unreachable runtime.

Keeps the newest observation of every instance object and says when something changed that a
decision could depend on. Decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping
from typing import Any

from airflow_training.agent.progress_tail import merge_points
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import Change, InstanceUpdate, RoomMade, Runtime, Snapshot
from airflow_training.supervise.retrying import retry_delay
from airflow_training.supervise.waiting import is_set_within

__all__ = ["Watcher"]

log = logging.getLogger(__name__)
_ObjectKey = tuple[str, int, str]
_ENDED = frozenset({"succeeded", "failed"})


class Watcher:
    """The observations of one run, kept current by `run()`."""

    def __init__(
        self,
        runtime: Runtime,
        run: RunRef,
        *,
        on_change: Callable[[], None],
        on_room: Callable[[], None] = lambda: None,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
    ) -> None:
        """`on_change` is called on the event loop when a decision may turn out differently.

        `on_room`: when what was refused for now may be made.
        """
        self._runtime = runtime
        self._run = run
        self._on_change = on_change
        self._on_room = on_room
        self._sleep = sleep
        self._seen: dict[_ObjectKey, Observation] = {}
        self._imagined: dict[str, _ObjectKey] = {}
        self._new_ends: set[_ObjectKey] = set()
        self._leaving: set[_ObjectKey] = set()
        self._shown: set[_ObjectKey] = set()
        self._reachable = True
        self._failures = 0
        self._told = ""
        """Why the runtime cannot be reached, as it was told last."""
        self._doubts = 0
        self._fresh = False
        """Whether the watch that runs has given a snapshot."""
        self._restart = asyncio.Event()
        self._snapshot = asyncio.Event()
        self._progress: dict[InstanceKey, ProgressReport] = {}
        self._environment: dict[InstanceKey, tuple[str, ...]] = {}
        self.progressed = asyncio.Event()
        """Set while `pop_progress` or `pop_environment` has something to give."""

    def poll(self) -> Observations | None:
        """Observations for one decision; None before the first snapshot.

        An object that ended and went away since the last look is told once more as it ended:
        how it ended decides what follows, and an absent object only says that it vanished.
        """
        if not self._snapshot.is_set():
            return None
        for key in self._shown:
            self._seen.pop(key, None)
        self._new_ends.clear()
        self._shown, self._leaving = self._leaving, set()
        if self._shown:
            self._on_change()
        return self.glance()

    def glance(self) -> Observations | None:
        """Observations as `poll` has them, left for its next call to deliver."""
        if not self._snapshot.is_set():
            return None
        why = "" if self._reachable else self._told
        return Observations(
            instances=tuple(self._seen.values()), reachable=self._reachable, why=why
        )

    @property
    def answers(self) -> bool:
        """Whether the runtime answered when it was last asked; true before it was asked at all."""
        return self._reachable

    @property
    def instances(self) -> Collection[Observation]:
        """Return every object that is known now."""
        return self._seen.values()

    async def first_snapshot(self, *, timeout_seconds: float) -> None:
        """Return when there was a snapshot, or after the timeout."""
        await is_set_within(self._snapshot, timeout_seconds)

    def pop_progress(self) -> Mapping[InstanceKey, ProgressReport]:
        """Return the progress that came since the last call."""
        taken, self._progress = self._progress, {}
        self.progressed.clear()
        return taken

    def pop_environment(self) -> Mapping[InstanceKey, tuple[str, ...]]:
        """Return the records of instances' environments that came since the last call."""
        taken, self._environment = self._environment, {}
        return taken

    def distrust(self, *, failures: int) -> None:
        """Say that effects failed, so often in a row: what is seen may be old, so a fresh snapshot is asked for.

        Whether the runtime answers is told by that: where it refuses a write, it may be read all the same.
        """
        if self._fresh:  # else it is being asked for
            self._doubts = failures
            self._restart.set()

    def imagine(self, observation: Observation) -> None:
        """Add an object that never came to be (a create that was refused for good) as failed."""
        self._imagined[observation.uid] = _key(observation)
        self._seen[_key(observation)] = observation
        self._on_change()

    def forget(self, uid: str) -> bool:
        """Drop an object that was only imagined; return whether it was."""
        key = self._imagined.pop(uid, None)
        if key is None:
            return False
        self._seen.pop(key, None)
        self._on_change()
        return True

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._restart.clear()
            self._fresh = broke = False
            watching = asyncio.ensure_future(self._watch())
            restart = asyncio.ensure_future(self._until_doubted())
            try:
                await asyncio.wait({watching, restart}, return_when=asyncio.FIRST_COMPLETED)
                broke = watching.done()
            finally:
                for task in (watching, restart):
                    task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watching
            if broke:
                self._lost_sight()
                self._failures += 1
                await self._sleep(retry_delay(self._failures))

    async def _until_doubted(self) -> None:
        """Return when the watch is to begin again: ever less often, and it goes on meanwhile."""
        await self._restart.wait()
        await self._sleep(retry_delay(self._doubts))

    async def _watch(self) -> None:
        """Take in changes until the watch breaks; every break is retried by the caller."""
        try:
            async for change in self._runtime.watch(self._run):
                self._take(change)
        except RuntimeUnavailable as error:
            if str(error) != self._told:  # once, and again as the words change
                self._told = str(error)
                log.warning("runtime of run %s unreachable: %s", self._run.uid, error)
        except Exception:
            log.exception("watch broke; starting it again", extra={"run": self._run.uid})

    def _take(self, change: Change) -> None:
        if isinstance(change, RoomMade):
            self._on_room()
            self._on_change()
        elif isinstance(change, Snapshot):
            self._failures, self._fresh, self._told = 0, True, ""
            imagined = {key: self._seen[key] for key in self._imagined.values()}
            before, self._seen = self._seen, {_key(each): each for each in change.instances}
            self._seen |= imagined
            for keys in (self._new_ends, self._leaving, self._shown):
                keys.clear()
            for key, each in self._seen.items():
                self._note_progress(before.get(key), each)
            self._reachable = True
            self._snapshot.set()
            self._on_change()
        elif isinstance(change, InstanceUpdate):
            key = _key(change.instance)
            before_it = self._seen.get(key)
            self._seen[key] = change.instance
            self._note_progress(before_it, change.instance)
            if before_it is None or _relevant(before_it) != _relevant(change.instance):
                if change.instance.state in _ENDED:
                    self._new_ends.add(key)
                self._on_change()
        else:
            key = (change.role, change.index, change.uid)
            last = self._seen.get(key)
            if last is not None and last.disrupted and last.state not in _ENDED:
                # the platform said why it takes the object away: that is how it ended
                self._seen[key] = dataclasses.replace(
                    last, state="failed", address_live=False, port_open=False, ready=False
                )
                self._leaving.add(key)
                self._on_change()
            elif key in self._new_ends:
                self._leaving.add(key)
            elif self._seen.pop(key, None) is not None:
                self._on_change()

    def _note_progress(self, before: Observation | None, now: Observation) -> None:
        if now.progress is not None and (before is None or before.progress != now.progress):
            earlier = self._progress.get(now.key, ProgressReport()).points
            points = merge_points(earlier, now.progress.points) if earlier else now.progress.points
            self._progress[now.key] = dataclasses.replace(now.progress, points=points)
            self.progressed.set()
        if now.environment and (before is None or before.environment != now.environment):
            self._environment[now.key] = now.environment
            self.progressed.set()

    def _lost_sight(self) -> None:
        if self._reachable:
            self._reachable = False
            self._on_change()


def _key(observation: Observation) -> _ObjectKey:
    return observation.role, observation.index, observation.uid


def _relevant(observation: Observation) -> Any:
    """Return the observation without what no decision reads, so that steps wake nobody."""
    return dataclasses.replace(observation, progress=None, environment=())

"""Looks at a run on the shared folder: what is there now, and what changed since the look before."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from airflow_training.agent.files import AttemptFolder, read_json
from airflow_training.control.observations import Observation
from airflow_training.control.transitions import ENDED
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.folders.observation import last_of
from airflow_training.runtimes.folders.observed import ObservedInstances
from airflow_training.runtimes.port import InstanceRemoval, InstanceUpdate
from airflow_training.runtimes.slurm.attempts import AttemptReader
from airflow_training.runtimes.slurm.observe import observe_attempt
from airflow_training.runtimes.slurm.queue_watch import QueueWatch

__all__ = ["SlurmScanner"]

_WHOLE_LOOK_SECONDS = 5.0
"""How often everything is read, though no folder seems to have changed: file systems count time in steps."""
_PROGRESS_SECONDS = 1.0
_RETRY_SECONDS = 1.0
"""How often what is not settled yet is looked at."""


def _written(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


class SlurmScanner:
    """Remembers what it saw. Blocks for file reads, and for the queue where its time has come."""

    def __init__(self, reader: AttemptReader, queue: QueueWatch) -> None:
        self._reader = reader
        self._queue = queue
        self._observed = ObservedInstances()
        self.seen: Mapping[InstanceKey, Observation] = self._observed.newest
        self._signatures: dict[InstanceKey, tuple[int, ...]] = {}
        self._folders: dict[InstanceKey, AttemptFolder] = {}
        """Of the newest attempts, while they live."""
        self._whole: tuple[int, ...] = ()
        self._next_whole = 0.0
        self._next_progress = 0.0
        self._unsettled: dict[InstanceKey, float] = {}

    def poll(self) -> list[InstanceUpdate | InstanceRemoval]:
        """Changes since the last poll."""
        self._queue.poll()
        now = time.monotonic()
        whole = self._signature_of_all()
        if whole != self._whole or now >= self._next_whole:
            self._whole, self._next_whole = whole, now + _WHOLE_LOOK_SECONDS
            self._next_progress = now + _PROGRESS_SECONDS
            keys = {*self._reader.run.instances(), *self.seen}
        else:
            keys = {key for key in self.seen if self._signature(key) != self._signatures.get(key)}
            keys |= {key for key, at in self._unsettled.items() if now >= at}
            if now >= self._next_progress:
                self._next_progress = now + _PROGRESS_SECONDS
                keys |= {
                    key for key, folder in self._folders.items() if self._has_grown(key, folder)
                }
        changes: list[InstanceUpdate | InstanceRemoval] = []
        for key in sorted(keys):
            self._signatures[key] = self._signature(key)  # before reading: nothing may slip through
            changes += self._observed.compare(key, self._observe(key))
        return changes

    def _signature_of_all(self) -> tuple[int, ...]:
        """Return what changes with any allocation, and with new instances."""
        run = self._reader.run.path
        found = [self._queue.version, _written(run), _written(run / "allocations")]
        for each in self._reader.book:
            if not each.ended:
                folder = each.folder
                found += map(_written, (folder.parent, folder, folder / "steps"))
        return tuple(found)

    def _signature(self, key: InstanceKey) -> tuple[int, ...]:
        folder = self._folders.get(key)
        instance = self._reader.run.instance(*key)
        return _written(instance), 0 if folder is None else _written(folder.control)

    def _has_grown(self, key: InstanceKey, folder: AttemptFolder) -> bool:
        seen = self.seen.get(key)
        if seen is None or seen.state in ENDED:
            return False
        return self._observed.has_progress(folder, seen.uid)

    def _observe(self, key: InstanceKey) -> Observation | None:
        found = self._reader.current(*key)
        self._unsettled.pop(key, None)
        if found is None:
            self._folders.pop(key, None)
            return None
        folder, state = found
        old = self.seen.get(key)
        if old is not None and old.uid != state.uid:
            self._observed.forget(old.uid)
        self._folders[key] = folder
        placed = self._reader.placement(folder, state.uid)
        unexplained = self._reader.unexplained(state)
        observation = observe_attempt(
            state,
            phase="over" if placed is None else self._reader.book.phase(placed[0]),
            jobs=() if placed is None else self._reader.book.jobs(placed[0]),
            job="" if placed is None else placed[0].job,
            place={} if placed is None else placed[0].started.get("members", {}).get(str(key), {}),
            unexplained=unexplained,
            ordered_at=_written(folder.spec) / 1e9,
            progress=self._observed.read_progress(folder, state.uid) if state.state else None,
            environment=self._observed.read_environment(folder, state.uid),
            port_open=(read_json(folder.control / "port-open.json") or {}).get("uid") == state.uid,
        )
        if observation is None and old is not None and old.state not in ENDED:
            last = last_of(state)
            if last is not None:
                self._observed.note_end(last)
        if observation is not None and (unexplained or observation.state == "unknown"):
            self._unsettled[key] = time.monotonic() + _RETRY_SECONDS
        return observation

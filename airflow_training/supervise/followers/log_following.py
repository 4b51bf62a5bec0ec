"""Reads the logs of running instances through the runtime's port and hands them to the log worker.

What is read is in memory only until the worker has stored its values; where to go on is in the
store. So a worker or a whole host that dies leaves no gap, and nothing is stored twice.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry, Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import InstanceRef, Runtime
from airflow_training.runtimes.progress import progress_of
from airflow_training.state.store import LogPosition, Store
from airflow_training.supervise.followers.log_ends import read_end
from airflow_training.supervise.followers.log_progress import LogProgress
from airflow_training.supervise.followers.log_worker import (
    PieceOfLog,
)
from airflow_training.supervise.followers.log_worker_process import LogWorker, WorkerDied, worker_of
from airflow_training.supervise.waiting import alongside

__all__ = ["LogFollower"]

log = logging.getLogger(__name__)

_EVERY_SECONDS = 5.0
_READS_PER_SECOND = 20.0
"""On a cluster each is a request to its API server: many instances are read less often."""
_YOUNG_SECONDS = 5.0
"""An instance that ends before is not worth a process: most of them failed to start."""
_CHUNK_BYTES = 1 << 20
_CHUNKS_AT_ONCE = 16
"""Of one instance, before the others have their turn."""
_KNOWN_BYTES = 2 << 10
"""Of the lines before that, which tell where new ones begin."""
_LONGEST_LINE = 8 << 20
_FINISH_SECONDS = 10.0
"""For what is left when the run is over,"""
_END_SECONDS = 10.0
"""and for the ends of logs of which more is left than that."""
_TRIES = 3
"""A piece that the worker has died over so often is left out."""


class LogFollower:
    """The logs of one run, as long as one holder drives it."""

    def __init__(
        self,
        *,
        store: Store,
        runtime: Runtime,
        run: RunRef,
        patterns: Sequence[ResolvedLogPattern] = (),
        ledger: Callable[[], Ledger],
        now: Callable[[], float],
        on_progress: Callable[[InstanceKey, ProgressReport], None],
    ) -> None:
        """`patterns`: formats of the job's own lines. `on_progress` is told what logs say of instances that report nothing themselves."""
        self._store = store
        self._runtime = runtime
        self._run = run
        self._patterns = patterns
        self._ledger = ledger
        self._now = now
        self._on_progress = on_progress
        self._followed: dict[InstanceKey, LogProgress] = {}
        self._reporting: set[InstanceKey] = set()
        self._stored: Mapping[InstanceKey, LogPosition] | None = None
        self._worker: LogWorker | None = None
        self._turn = asyncio.Lock()

    def reported(self, progress: Mapping[InstanceKey, ProgressReport]) -> None:
        """Say what scripts report themselves: where that has metrics, the log is not read."""
        self._reporting |= {key for key, each in progress.items() if each.metrics}

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                await self._poll()
                alive = len(self._ledger().instances)
                await asyncio.sleep(max(_EVERY_SECONDS, alive / _READS_PER_SECOND))
        finally:
            await self._leave()

    async def finish(self) -> None:
        """Read what is left, where anything was read before; of what is too much the end."""
        if self._worker is None:
            return
        await self._in_time(self._read_rest(), _FINISH_SECONDS)
        if not await self._in_time(self._read_ends(), _END_SECONDS):
            log.warning("run %s: the end of its logs was not read in time", self._run.uid)

    async def _in_time(self, work: Coroutine[None, None, None], seconds: float) -> bool:
        """Return whether something was done in time; else it is stopped."""
        async with alongside(work) as tasks:
            await asyncio.wait(tasks, timeout=seconds)
            return tasks[0].done()

    async def _read_rest(self) -> None:
        while await self._poll():
            pass

    async def _read_ends(self) -> None:
        """Go to the end of each log of which more is left than could be read."""
        async with self._turn:
            self._stored = None  # what was stopped may have stored something
            self._followed.clear()
            for key, entry in list(self._ledger().instances.items()):
                if entry.was_running and key not in self._reporting and not entry.desired:
                    await self._try_to_read_end(key, entry)

    async def _try_to_read_end(self, key: InstanceKey, entry: InstanceEntry) -> None:
        try:
            await self._read_end(key, entry)
        except RuntimeUnavailable as error:
            log.debug("log of %s not readable now: %s", key, error)
        except WorkerDied as error:
            text = "run %s: no values of the end of the log of %s: %s"
            log.warning(text, self._run.uid, key, error)
        except Exception:
            log.warning("log of %s could not be read", key, exc_info=True)

    async def _read_end(self, key: InstanceKey, entry: InstanceEntry) -> None:
        followed = await self._begin(key)
        newest, position = entry.attempt_id, followed.position
        if position is not None and position.ended and position.attempt_id == newest:
            return
        if position is None or position.attempt_id != newest:
            last_at = 0.0 if position is None else position.last_at
            position = _at_the_beginning(newest, last_at=last_at)
            followed.begin(position)
        end = await read_end(self._runtime, self._ref(key, position), limit=_CHUNK_BYTES)
        if end.offset is None:
            known = await self._known(key, followed, position)
            amount = "some of it" * followed.skip_to_lines(end, known, done=position.done)
        else:
            left_out = followed.skip_to(end)
            amount = f"{left_out} bytes" if left_out else ""
        begun = entry.started_at or self._now()
        await self._scan(key, followed, position, begun=begun, over=True)
        if amount:
            text = "run %s: the log of %s was too much to be read whole: no values of %s before its last %d bytes"
            log.warning(text, self._run.uid, key, amount, len(end.data))

    async def _known(self, key: InstanceKey, followed: LogProgress, position: LogPosition) -> bytes:
        """Return the last lines before `done`, by which they are found again; empty where they cannot be had."""
        data, cursor = b"", followed.next
        while cursor.offset < position.done:
            ref = self._ref(key, position)
            chunk = await self._runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
            if not chunk.data:
                return b""
            cursor = chunk.next
            data = (data + chunk.data)[-_CHUNK_BYTES - _KNOWN_BYTES :]
        data = data[: len(data) - (cursor.offset - position.done)]
        return data[data.find(b"\n", -_KNOWN_BYTES) + 1 :] if data.endswith(b"\n") else b""

    async def _leave(self) -> None:
        if self._worker is not None:
            self._worker.users -= 1
            if not self._worker.users:
                await self._worker.stop()
            self._worker = None

    async def _poll(self) -> bool:
        """Read what is new; return whether there is more."""
        more = False
        async with self._turn:
            for key, entry in list(self._ledger().instances.items()):
                if entry.was_running and key not in self._reporting:
                    more |= await self._try_to_follow(key, entry)
        return more

    async def _try_to_follow(self, key: InstanceKey, entry: InstanceEntry) -> bool:
        end = entry.finished_at or self._now()
        young = end - (entry.started_at or end) < _YOUNG_SECONDS
        if young and key not in self._followed:
            return False
        try:
            return await self._follow(key, entry)
        except RuntimeUnavailable as error:
            log.debug("log of %s not readable now: %s", key, error)
        except WorkerDied as error:
            log.warning("run %s: %s", self._run.uid, error)
            await self._after_death(key, killed=error.killed)
        except Exception:
            log.warning("log of %s could not be read", key, exc_info=True)
            self._forget(key)
        return False

    async def _follow(self, key: InstanceKey, entry: InstanceEntry) -> bool:
        """Bring what is new in an instance's log to the store; return whether there is more."""
        followed = self._followed.get(key) or await self._begin(key)
        newest = entry.attempt_id
        for _ in range(_CHUNKS_AT_ONCE):
            position = followed.position
            if position is None or (position.ended and position.attempt_id != newest):
                last_at = 0.0 if position is None else position.last_at
                position = _at_the_beginning(newest, last_at=last_at)
                followed.begin(position)
            if position.ended:
                return False
            chunk = await self._runtime.read_log(
                self._ref(key, position), followed.next, limit=_CHUNK_BYTES
            )
            over = not chunk.data and (chunk.end or position.attempt_id != newest)
            if chunk.data:
                followed.add(chunk)
            elif not over:
                return False
            begun = entry.started_at or self._now()
            if not await self._scan(key, followed, position, begun=begun, over=over):
                return False
        return True

    async def _begin(self, key: InstanceKey) -> LogProgress:
        if self._stored is None:
            self._stored = await asyncio.to_thread(self._store.log_values.positions, self._run.uid)
        self._followed[key] = found = LogProgress(self._stored.get(key))
        return found

    async def _scan(
        self,
        key: InstanceKey,
        followed: LogProgress,
        position: LogPosition,
        *,
        begun: float,
        over: bool,
    ) -> bool:
        """Give the worker what was read; return whether to go on."""
        text = b"".join(chunk.data for chunk in followed.chunks)
        first = followed.chunks[0] if followed.chunks else None
        back = followed.next if first is None else first.cursor
        offset = followed.next.offset if first is None else first.offset
        endless = len(text) - max(0, position.done - offset) > _LONGEST_LINE
        if over and self._worker is None and not text and not position.held:
            return False  # it printed nothing: that is not worth a process
        if self._worker is None:
            self._worker = worker_of(self._store)
            self._worker.users += 1
        after = dataclasses.replace(
            position,
            done=max(position.done, offset),
            offset=back.offset,
            token=back.token,
            ended=over,
        )
        piece = PieceOfLog(
            uid=self._run.uid,
            key=key,
            before=followed.stored,
            after=after,
            offset=offset,
            begun=begun,
            patterns=self._patterns,
            complete=over or endless,
        )
        answer = await self._worker.scan(piece, text)
        if answer.position is None:
            if answer.error:
                log.debug("values of %s not stored: %s", key, answer.error)
            self._forget(key)
            return False
        followed.stored = followed.position = answer.position
        followed.deaths = 0
        followed.forget(answer.position.done)
        told = progress_of(answer.progress)
        if told is not None and key not in self._reporting:
            self._on_progress(key, told)
        return True

    async def _after_death(self, key: InstanceKey, *, killed: bool) -> None:
        """Read on from what the store says; leave out what the worker dies of again and again."""
        followed = self._followed[key]
        deaths = followed.deaths + (not killed)
        stored = followed.stored
        if deaths >= _TRIES and followed.position is not None:
            log.warning("a part of the log of %s is left out", key)
            cursor = followed.next
            after = dataclasses.replace(
                followed.position, done=cursor.offset, offset=cursor.offset, token=cursor.token
            )
            await asyncio.to_thread(
                self._store.log_values.save,
                self._run.uid,
                key,
                before=stored,
                after=after,
                values=(),
                progress=None,
            )
            deaths = 0
        self._forget(key)
        (await self._begin(key)).deaths = deaths

    def _forget(self, key: InstanceKey) -> None:
        """Take the store's word for where an instance's log goes on."""
        self._followed.pop(key, None)
        self._stored = None

    def _ref(self, key: InstanceKey, position: LogPosition) -> InstanceRef:
        return InstanceRef(run=self._run, key=key, attempt_id=position.attempt_id)


def _at_the_beginning(attempt: AttemptId, *, last_at: float) -> LogPosition:
    return LogPosition(
        epoch=attempt.epoch,
        job_attempt=attempt.job_attempt,
        attempt=attempt.attempt,
        last_at=last_at,
    )

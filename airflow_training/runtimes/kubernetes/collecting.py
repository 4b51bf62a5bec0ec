"""Brings what living pods print to this machine as it comes: a node keeps 10 MiB of a log, and we all of it.

One stream for each pod, over connections of their own, so that whatever creates, deletes and watches
never waits for a log. Beyond so many streams, pods are read in turns.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import shutil
import tempfile
import time
import weakref
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.control.attempts import AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import pod_attempts as turns
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Invalid, NotFound
from airflow_training.runtimes.kubernetes.collected import CollectedLog, CollectedRun
from airflow_training.runtimes.kubernetes.instances import identity
from airflow_training.runtimes.kubernetes.logs import LogCut, Read, begun_late, followed
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.timestamped_lines import Piece, StampedReader
from airflow_training.runtimes.kubernetes.watch_loop import detached
from airflow_training.runtimes.port import InstanceRef

__all__ = ["LogCollector", "PodLog"]

log = logging.getLogger(__name__)

STREAMS = 384
"""Logs that one process follows at the same time while pods live."""
_LAST_STREAMS = 128
"""Others that it follows to their end, as their pods are told to go."""
_TURN_SECONDS = 1.0
"""Between two reads of pods that have no stream."""
_TURN_BYTES = 16 << 20
_LOOK_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0
"""Before a log is followed again that could not be: twice as long after each failure in a row."""
_END_SECONDS = 5.0
"""How long a stream that ended waits for the news that its container has."""
_LEAST_BYTES = 16 << 20
"""Kept of each log at least while its pod lives."""

Pods = Callable[[], Iterable[PodView]]
"""The pods of a run as they are now."""
OnEnd = Callable[[RunRef, PodView], Awaitable[None]]


class _Limits:
    """What belongs to one event loop."""

    def __init__(self) -> None:
        self.streams = asyncio.Semaphore(STREAMS)
        self.last_streams = asyncio.Semaphore(_LAST_STREAMS)
        self.turn = asyncio.Lock()


class LogCollector:
    """The logs that this process collects, and those that another one on this machine does."""

    def __init__(
        self, api: Api, folder: Path | None, *, tail_bytes: int, on_end: OnEnd | None = None
    ) -> None:
        """`folder`: of all processes on this machine; None: of this one alone.

        `on_end`: awaited for each pod whose container has ended, while it may still be there.

        `tail_bytes`: how much of its end is wanted of a log; 0: all of it.
        """
        self._api = api
        self._given = folder
        self._on_end = on_end
        self._most_bytes = max(tail_bytes, _LEAST_BYTES) if tail_bytes else 0
        self._streams: dict[str, asyncio.Task[bool]] = {}
        """Pod uid -> what collects its log, or has."""
        self._followed: set[str] = set()
        """Pods whose logs are followed now, or were to their end; those read in turns are not."""
        self._ended: set[str] = set()
        """Of these the ones that were read to their end."""
        self._running: defaultdict[str, int] = defaultdict(int)
        """Run uid -> calls of `collect`."""
        self._limits: dict[asyncio.AbstractEventLoop, _Limits] = {}

    @functools.cached_property
    def _folder(self) -> Path:
        if self._given is not None:
            return self._given
        made = tempfile.mkdtemp(prefix="airflow-training-logs-")
        weakref.finalize(self, shutil.rmtree, made, ignore_errors=True)
        return Path(made)

    async def collect(self, run: RunRef, pods: Pods) -> None:
        """Collect the logs of a run's pods until cancelled; another process may do it instead."""
        kept = CollectedRun(self._folder, run.uid)
        begun: dict[str, asyncio.Task[bool]] = {}
        self._running[run.uid] += 1
        try:
            while True:
                if await asyncio.to_thread(_acquire, kept):
                    for pod in pods():
                        uid = pod.uid
                        if uid not in self._streams and pod.has_trained:
                            work = self._collect_pod if pod.trains else self._end
                            begun[uid] = detached(work(run, pod, pods))
                            self._streams[uid] = begun[uid]
                await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._running[run.uid] -= 1
            for task in begun.values():
                task.cancel()
            await asyncio.gather(*begun.values(), return_exceptions=True)
            for uid in begun:
                self._streams.pop(uid, None)
                self._followed.discard(uid)
                self._ended.discard(uid)
            kept.release()

    def is_collected(self, run: RunRef) -> bool:
        """Return whether somebody on this machine collects a run's logs. Blocks."""
        return bool(self._running.get(run.uid)) or CollectedRun(self._folder, run.uid).is_written

    def find(self, run: RunRef, pod_uid: str) -> CollectedLog | None:
        """Return the log of a living pod where somebody on this machine collects it. Blocks."""
        if not self._running.get(run.uid) and self._given is None:
            return None
        found = CollectedRun(self._folder, run.uid).log(pod_uid, most_bytes=self._most_bytes)
        return found if self.is_collected(run) else None

    def whole(self, run: RunRef, pod: PodView, *, follow: bool = True) -> PodLog:
        """Return the log of a pod from its beginning on. `follow`: until it ends, else until now."""
        uid = pod.uid
        return PodLog(
            api=self._api,
            pod=pod,
            collected=CollectedRun(self._folder, run.uid).log(uid, most_bytes=self._most_bytes),
            stream=self._streams.get(uid) if uid in self._followed else None,
            has_ended=uid in self._ended,
            slots=self._here().last_streams,
            follow=follow,
        )

    def begun(self, run: RunRef) -> list[tuple[InstanceRef, bytes, ArchivedPodLog]]:
        """Return the attempts whose logs somebody began to archive: with their first line, and their logs.

        Who did may have been killed, and the pods be gone. Blocks.
        """
        kept = CollectedRun(self._folder, run.uid)
        return [
            (
                _ref_of(run, about["attempt"]),
                about["begins"].encode(),
                ArchivedPodLog(
                    kept.log(uid, most_bytes=self._most_bytes), is_whole=about.get("ended", False)
                ),
            )
            for uid, about in kept.notes().items()
        ]

    def collected_of(self, ref: InstanceRef) -> tuple[bytes, ArchivedPodLog] | None:
        """The log of an attempt whose pod is gone, as somebody on this machine collected it. Blocks."""
        found = [each for each in self.begun(ref.run) if identity(each[0]) == identity(ref)]
        return found[0][1:] if found else None

    def forget(self, run: RunRef) -> None:
        """Remove what was collected of a run whose logs are in the archive. Blocks."""
        CollectedRun(self._folder, run.uid).remove()

    def _here(self) -> _Limits:
        return self._limits.setdefault(asyncio.get_running_loop(), _Limits())

    async def _collect_pod(self, run: RunRef, pod: PodView, pods: Pods) -> bool:
        """Collect the log of one pod; return whether it was read to its end. Then it is archived."""
        uid, whole = pod.uid, await self._read_pod(run, pod, pods)
        pod = next((each for each in pods() if each.uid == uid), pod)
        if whole:
            self._ended.add(uid)
            collected = CollectedRun(self._folder, run.uid).log(uid, most_bytes=self._most_bytes)
            await asyncio.to_thread(lambda: collected.note({**_about(pod), "ended": True}))
        self._followed.discard(uid)  # nobody shall wait for this task, which now waits itself
        return await self._end(run, pod, pods) and whole

    async def _end(self, run: RunRef, pod: PodView, _: Pods) -> bool:
        if self._on_end is not None:
            await self._on_end(run, pod)
        return True

    async def _read_pod(self, run: RunRef, pod: PodView, pods: Pods) -> bool:
        """Collect a log while its container runs; return whether it was read to its end."""
        uid, name, container = pod.uid, pod.name, pod.container
        collected = CollectedRun(self._folder, run.uid).log(uid, most_bytes=self._most_bytes)
        reader = await asyncio.to_thread(collected.reader)
        is_new, started, since = not reader.token, pod.training_since, time.time()
        streams, failures = self._here().streams, 0
        while True:
            try:
                if streams.locked():
                    self._followed.discard(uid)
                    await self._take_turn(run.namespace, name, container, reader, collected)
                    if not _runs(uid, pods):
                        return False
                    continue
                async with streams:
                    self._followed.add(uid)
                    pieces = followed(self._api, run.namespace, name, container, reader=reader)
                    async for fresh in pieces:
                        failures = 0
                        if fresh and is_new:
                            # whose it is stands beside it first: its pod, and who reads it, may go at any moment
                            await asyncio.to_thread(lambda: collected.note(_about(pod), ahead=True))
                            late = begun_late(started, fresh, read_since=since) if started else []
                            await _append(collected, late)
                            is_new = False
                        await _append(collected, fresh)
                if await _has_ended(uid, pods):
                    return True
            except (Invalid, NotFound, LogCut):
                return False
            except (ApiError, RuntimeUnavailable, OSError) as error:
                log.debug("the log of %s is not collected now: %s", name, error)
                self._followed.discard(uid)
                failures += 1
                await _pause(failures, uid=uid, pods=pods)
                reader = await asyncio.to_thread(collected.reader)  # not all may have been written

    async def _take_turn(
        self,
        namespace: str,
        name: str,
        container: str,
        reader: StampedReader,
        collected: CollectedLog,
    ) -> None:
        async with self._here().turn:
            await asyncio.sleep(_TURN_SECONDS)
            read = reading(self._api, namespace, name, container)
            text = await read(reader.reopen(), _TURN_BYTES)
        await _append(collected, list(reader.take(text)))


class ArchivedPodLog:
    """The log of a pod that is gone: what was collected of it."""

    def __init__(self, collected: CollectedLog, *, is_whole: bool) -> None:
        self.dropped = 0
        self.cut = "" if is_whole else "its pod was gone before its end was read"
        self._collected = collected

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield the text of the log, without time stamps."""
        reader = StampedReader()
        self.dropped, blocks = await asyncio.to_thread(self._collected.open)
        while block := await asyncio.to_thread(next, blocks, b""):
            yield _content(list(reader.take(block)))


class PodLog:
    """The log of one pod: what was collected of it, and what comes after."""

    def __init__(
        self,
        *,
        api: Api,
        pod: PodView,
        collected: CollectedLog,
        stream: asyncio.Task[bool] | None,
        slots: asyncio.Semaphore,
        follow: bool,
        has_ended: bool = False,
    ) -> None:
        """`stream`: what collects it now. `has_ended`: it was collected to its end."""
        self.dropped = 0
        self.cut = ""
        self._has_ended = has_ended
        self._api = api
        self._pod = pod
        self._collected = collected
        self._stream = stream
        self._slots = slots
        self._follow = follow

    async def blocks(self) -> AsyncIterator[bytes]:
        """Yield it; first something empty: the log is open. Raises what `followed` does."""
        # before its pod may go: whoever is killed from here on leaves a copy that says whose it is
        await asyncio.to_thread(lambda: self._collected.note(_about(self._pod)))
        has_ended = self._has_ended or await asyncio.to_thread(self._collected.has_ended)
        if self._stream is not None and self._follow and not has_ended:
            yield b""
            await asyncio.wait({self._stream})
            done = not self._stream.cancelled() and self._stream.exception() is None
            has_ended = done and self._stream.result()
        reader = StampedReader()
        self.dropped, blocks = await asyncio.to_thread(self._collected.open)
        while block := await asyncio.to_thread(next, blocks, b""):
            yield _content(list(reader.take(block)))
        if has_ended:
            return
        place = self._pod.namespace, self._pod.name, self._pod.container
        try:
            async with self._slots:
                if self._follow:
                    async for pieces in followed(self._api, *place, reader=reader):
                        yield _content(pieces)
                else:
                    since = reader.reopen()
                    text = await self._api.log(
                        *place[:2], container=place[2], timestamps=True, since_time=since
                    )
                    yield _content(list(reader.take(text)))
        except LogCut as cut:
            self.cut = str(cut)
        except (Invalid, NotFound):
            if not reader.token:
                raise
            self.cut = (
                "its pod was gone before its end was read"  # what was collected is all there is
            )


def reading(api: Api, namespace: str, pod: str, container: str) -> Read:
    """A reader of a running container's log; it reads nothing while the container has not started."""

    async def read(since: str, size: int) -> bytes:
        try:
            return await api.log(
                namespace,
                pod,
                container=container,
                timestamps=True,
                since_time=since,
                limit_bytes=size,
            )
        except (Invalid, NotFound):
            return b""

    return read


def _ref_of(run: RunRef, noted: Mapping[str, Any]) -> InstanceRef:
    attempt = AttemptId(noted["epoch"], noted["job_attempt"], noted["attempt"])
    return InstanceRef(run=run, key=InstanceKey(noted["role"], noted["index"]), attempt_id=attempt)


def _about(pod: PodView) -> dict[str, Any]:
    ref = pod.ref
    attempt = {
        "role": ref.role,
        "index": ref.index,
        "epoch": ref.epoch,
        "job_attempt": ref.job_attempt,
        "attempt": ref.attempt,
    }
    return {"attempt": attempt, "begins": turns.first_log_line(pod).decode()}


def _acquire(kept: CollectedRun) -> bool:
    try:
        return kept.acquire()
    except OSError as error:
        if not kept.failed:
            log.warning("logs of living pods cannot be kept on this machine: %s", error)
        kept.failed = True
        return False


async def _append(collected: CollectedLog, pieces: Sequence[Piece]) -> None:
    if pieces:
        lines = [
            b"%b %b" % (stamp.encode(), content) if stamp else content for stamp, content in pieces
        ]
        await asyncio.to_thread(collected.append, b"".join(lines))


def _content(pieces: Sequence[Piece]) -> bytes:
    return b"".join(content for _, content in pieces)


def _runs(uid: str, pods: Pods) -> bool:
    return any(pod.uid == uid and pod.trains for pod in pods())


def _stage(uid: str, pods: Pods) -> tuple[bool, bool]:
    """Return whether a pod is there, and whether its container runs."""
    return any(pod.uid == uid for pod in pods()), _runs(uid, pods)


async def _pause(failures: int, *, uid: str, pods: Pods) -> None:
    """Wait before a log is read again, but not once its container ends or its pod goes: the run's end waits for it."""
    loop = asyncio.get_running_loop()
    doublings = min(failures - 1, 16)  # more make no difference, and at last no number
    until = loop.time() + min(_FIRST_PAUSE_SECONDS * 2**doublings, _LONGEST_PAUSE_SECONDS)
    before = _stage(uid, pods)
    while True:
        await asyncio.sleep(_FIRST_PAUSE_SECONDS)
        if loop.time() >= until or _stage(uid, pods) != before:
            return


async def _has_ended(uid: str, pods: Pods) -> bool:
    """Return whether a container whose stream ended has; its server may have gone instead."""
    loop = asyncio.get_running_loop()
    until = loop.time() + _END_SECONDS
    while _runs(uid, pods):
        if loop.time() > until:
            return False
        await asyncio.sleep(0.2)
    return True

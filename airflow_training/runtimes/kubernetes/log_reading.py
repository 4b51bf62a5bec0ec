"""The logs of attempts as they are asked for: of living pods, of what was collected, of the archive."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Awaitable, Callable, Collection, Iterable
from pathlib import Path

from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.agent_reports import AgentReports
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Invalid, NotFound
from airflow_training.runtimes.kubernetes.collecting import LogCollector, PodLog, reading
from airflow_training.runtimes.kubernetes.instances import identity
from airflow_training.runtimes.kubernetes.logs import KeyedThrottle, LogArchive, read_live
from airflow_training.runtimes.kubernetes.pod_attempts import first_log_line
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.shared_watches import SharedWatches
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk

__all__ = ["LogReading"]

_TRY_AGAIN_SECONDS = 60.0
"""Between two tries to get the rest of a log of which the archive has a part."""
_TAIL_LINES = 100
_TAIL_BYTES = 1 << 20
"""The API server counts both from the first of the last lines: the newest must not be cut off."""


class LogReading:
    """Where the log of an attempt is, and what brings it to the archive."""

    def __init__(
        self,
        api: Api,
        archive: LogArchive,
        *,
        folder: Path | None,
        watches: SharedWatches,
        reports: AgentReports,
        find: Callable[[InstanceRef], Awaitable[PodView | None]],
    ) -> None:
        """`api`: connections for logs alone. `folder`: where the logs of living pods are, for all processes here.

        `find`: asks for the pod of an attempt.
        """
        self._api = api
        self._archive = archive
        self._watches = watches
        self._reports = reports
        self._find = find
        self._tried = KeyedThrottle(seconds=_TRY_AGAIN_SECONDS)
        """Attempts of whose logs a part is archived, and lately no more was to be had."""
        self._collector = LogCollector(
            api, folder, tail_bytes=archive.tail_bytes, on_end=self._archive_ended
        )
        self._viewer = LogCollector(api, None, tail_bytes=archive.tail_bytes)
        """Of whoever looks at logs while nobody on this machine collects them."""

    def whole(self, run: RunRef, pod: PodView, *, follow: bool = True) -> PodLog:
        """Return the log of a pod from its beginning on. `follow`: until it ends, else until now."""
        return self._collector.whole(run, pod, follow=follow)

    async def read(self, instance: InstanceRef, cursor: Cursor, *, limit: int) -> LogChunk:
        """Return bytes of an attempt's log: of the archive once it has ended, else live."""
        pod, archived = self._watches.pod(instance), None
        if pod is None or pod.is_over:
            archived = await self._archive.read(instance, cursor, limit=limit)
            if archived is not None and not (archived.missing and self._may_have_more(instance)):
                return archived
        try:
            pod = pod or await self._find(instance)
            if pod is not None and not pod.is_over:
                return await self._read_live(instance.run, pod, cursor, limit=limit)
            if pod is not None:
                await self._archive_ended(instance.run, pod)
            else:
                await self._archive_collected(instance)
        except (ApiError, RuntimeUnavailable):
            if archived is None:
                raise
        archived = await self._archive.read(instance, cursor, limit=limit)
        missing = "its pod is gone, and its log is not in the archive" if pod is None else ""
        return archived or LogChunk(data=b"", next=cursor, end=True, missing=missing)

    async def tail(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the last lines of an attempt's log: of its pod by one request, else of the archive."""
        pod = self._watches.pod(instance) or await self._find(instance)
        if pod is None:
            if not await self._archive.has(instance) and self._may_have_more(instance):
                await self._archive_collected(instance)
            return await self._archive.tail(instance, limit=limit)
        try:
            lines = await self._api.log(
                instance.run.namespace,
                pod.name,
                container=pod.container,
                tail_lines=_TAIL_LINES,
                limit_bytes=_TAIL_BYTES,
            )
        except (Invalid, NotFound):  # it has not started, or has just gone
            return b""
        begins = first_log_line(pod)
        # what an earlier attempt wrote in this pod is not of this one
        return (lines.rpartition(begins + b"\n")[2] if begins else lines)[-limit:]

    async def collect(self, run: RunRef, *, only: Collection[InstanceKey] | None) -> None:
        """Follow the logs of a run's pods until cancelled; `only`: see the port."""

        def seen() -> Iterable[PodView]:
            if only is not None and self._collector.is_collected(run):
                return []
            return [pod for pod in self._watches.pods(run) if only is None or pod.ref.key in only]

        watching = asyncio.ensure_future(self._watches.keep_following(run))
        collector = self._collector if only is None else self._viewer
        try:
            await collector.collect(run, seen)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def archive_so_far(self, ref: InstanceRef, pod: PodView) -> None:
        """Archive what an attempt has printed whose pod goes on with the next one."""
        whole = self.whole(ref.run, pod, follow=False)
        await self._archive.keep(ref, whole, begins=first_log_line(pod))

    async def archive_rest(self, run: RunRef) -> None:
        """Archive what is collected of a run that is over, whose archiving may have been cut short."""
        for ref, begins, log in await asyncio.to_thread(self._collector.begun, run):
            await self._archive.keep(ref, log, begins=begins)
        if not self._archive.is_failing:  # else what was collected is all there is
            await self.forget(run)

    async def forget(self, run: RunRef) -> None:
        """Remove what was collected of a run."""
        await asyncio.to_thread(self._collector.forget, run)

    async def delete(self, uid: str) -> None:
        """Delete the archived logs of a run; raises OSError where something of them stays."""
        await self._archive.delete(uid)

    def _may_have_more(self, instance: InstanceRef) -> bool:
        """Return whether to look again for the rest of a log: what kept it from the archive may have passed."""
        return self._tried.is_due((instance.run.uid, identity(instance)), now=time.monotonic())

    async def _archive_ended(self, run: RunRef, pod: PodView) -> None:
        """Archive the log of a pod that has ended."""
        ref = dataclasses.replace(pod.ref, run=run)
        await self._archive.keep(ref, self.whole(run, pod), begins=first_log_line(pod))

    async def _archive_collected(self, instance: InstanceRef) -> None:
        """Archive what was collected of an attempt whose pod somebody else has taken away."""
        found = await asyncio.to_thread(self._collector.collected_of, instance)
        if found is not None:
            await self._archive.keep(instance, found[1], begins=found[0])

    async def _read_live(
        self, run: RunRef, pod: PodView, cursor: Cursor, *, limit: int
    ) -> LogChunk:
        waits = await self._reports.says_it_waits(run, pod)  # asked first: it then prints no more
        collected = await asyncio.to_thread(
            lambda: self._collector.find(run, pod.uid) or self._viewer.find(run, pod.uid)
        )
        if collected is None:
            read = reading(self._api, run.namespace, pod.name, pod.container)
        else:
            read = collected.read
            if not cursor.token:
                dropped = await asyncio.to_thread(collected.dropped)
                cursor = Cursor(offset=max(cursor.offset, dropped))
        chunk = await read_live(read, cursor, limit=limit, begins=first_log_line(pod))
        return dataclasses.replace(chunk, end=waits and len(chunk.data) < limit)

"""Searches the logs of a run and sends each hit as it is found. Stops when nobody listens any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import StreamingResponse

from airflow_training.errors import TrainingError
from airflow_training.logs.reading.search import BadPattern, Searcher
from airflow_training.supervise.instance_logs import RunLogs
from airflow_training.web.api.logs import logs_of
from airflow_training.web.models import LogHit, SearchEnd
from airflow_training.web.rights import RunDep, read_logs

__all__ = ["router"]

_MOST_HITS = 1000
_TEXT_BYTES = 4096
_WAITING = 64
"""Hits that wait for a slow listener; the search waits with them."""

_THREADS = ThreadPoolExecutor(4, thread_name_prefix="training-search")
"""Their own: each waits for reads, which asyncio's few shared threads do. More searches queue."""

router = APIRouter(dependencies=[Depends(read_logs)])


class _SearchCancelled(Exception):
    """Nobody waits for hits any more."""


@router.get("/dags/{dag}/trainings/{uid}/log/search")
async def search(
    request: Request,
    run: RunDep,
    *,
    pattern: Annotated[str, Query(min_length=1, max_length=1000)],
    role: Annotated[str, Query(max_length=63)] = "",
    index: Annotated[int | None, Query(ge=0)] = None,
    ignore_case: bool = False,
    fixed: bool = False,
) -> StreamingResponse:
    """Send a line of JSON for each hit in the newest attempts' logs, and a last one at the end.

    `pattern`: a regular expression (RE2), plain text with `fixed`. No `role`: of all instances.
    """
    try:
        searcher = Searcher(pattern, ignore_case=ignore_case, literal=fixed)
    except BadPattern as error:
        raise HTTPException(422, f"pattern: {error}") from error
    logs = await asyncio.to_thread(logs_of, request, run)
    hits = _Hits(logs, searcher, role=role, index=index)
    return StreamingResponse(
        hits.lines(), media_type="application/x-ndjson", headers={"X-Accel-Buffering": "no"}
    )


class _Hits:
    """One search: a thread finds, the event loop sends."""

    def __init__(self, logs: RunLogs, searcher: Searcher, *, role: str, index: int | None) -> None:
        self._logs = logs
        self._searcher = searcher
        self._wanted = role, index
        self._loop = asyncio.get_running_loop()
        self._found: asyncio.Queue[LogHit | SearchEnd] = asyncio.Queue(_WAITING)
        self._cancelled = threading.Event()

    async def lines(self) -> AsyncIterator[str]:
        """Yield the hits and the end as lines of JSON."""
        finding = self._loop.run_in_executor(_THREADS, self._find)
        try:
            while True:
                found = await self._found.get()
                yield found.model_dump_json() + "\n"
                if isinstance(found, SearchEnd):
                    return
        finally:
            self._cancelled.set()
            while not self._found.empty():  # the thread may wait for room
                self._found.get_nowait()
            await asyncio.gather(finding, return_exceptions=True)

    def _find(self) -> None:
        end = SearchEnd()
        try:
            for number, hit in enumerate(self._matches()):
                if number == _MOST_HITS:
                    end = SearchEnd(more=True)
                    break
                self._publish(hit)
        except _SearchCancelled:
            return
        except (TrainingError, OSError) as error:
            end = SearchEnd(problem=str(error))
        self._publish(end)

    def _publish(self, found: LogHit | SearchEnd) -> None:
        self._check()
        asyncio.run_coroutine_threadsafe(self._found.put(found), self._loop).result()

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise _SearchCancelled

    def _matches(self) -> Iterator[LogHit]:
        role, index = self._wanted
        for log in self._logs.newest():
            instance = log.instance
            if role not in ("", instance.role) or index not in (None, instance.index):
                continue
            source = self._logs.open_ref(
                instance.name, log.ref, loop=self._loop, before=self._check
            )
            for match in self._searcher.search(source):
                yield LogHit(
                    role=instance.role,
                    index=instance.index,
                    attempt=log.ref.attempt,
                    offset=match.line.offset,
                    line=match.number,
                    text=match.line.data[:_TEXT_BYTES].rstrip(b"\r\n").decode(errors="replace"),
                )

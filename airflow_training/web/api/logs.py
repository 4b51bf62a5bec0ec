"""Stretches of logs by bytes, and whole logs. What is printed comes through the runtime port."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.control.attempts import AttemptId
from airflow_training.errors import InputError
from airflow_training.logs.diagnosis.severity import error_lines
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk, Runtime
from airflow_training.state.store import RunRecord, open_store
from airflow_training.supervise.instance_logs import InstanceLogs, RunLogs
from airflow_training.web.models import LogPage
from airflow_training.web.rights import RunDep, read_logs

__all__ = [
    "AttemptQuery",
    "IndexQuery",
    "RoleQuery",
    "chosen_attempt",
    "generation_of",
    "logs_of",
    "router",
]

_SIZE = 1 << 18
_MOST_BYTES = 1 << 20

router = APIRouter(dependencies=[Depends(read_logs)])

RoleQuery = Annotated[str, Query(max_length=63)]
IndexQuery = Annotated[int, Query(ge=0)]
AttemptQuery = Annotated[int | None, Query(ge=0)]


@router.get("/dags/{dag}/trainings/{uid}/log")
async def log(
    request: Request,
    run: RunDep,
    role: RoleQuery,
    index: IndexQuery,
    attempt: AttemptQuery = None,
    offset: Annotated[int, Query(ge=-_MOST_BYTES)] = 0,
    size: Annotated[int, Query(ge=1, le=_MOST_BYTES)] = _SIZE,
    *,
    inside: bool = False,
) -> LogPage:
    """Return whole lines from a byte on; a negative `offset` counts from the end.

    `inside`: what the page before this one says.
    """
    loop = asyncio.get_running_loop()
    page = await run_in_threadpool(
        _page, request, run, role, index, attempt, offset=offset, size=size, loop=loop
    )
    page.errors, page.inside = await run_in_threadpool(error_lines, page.text, inside=inside)
    return page


def logs_of(request: Request, run: RunRecord) -> RunLogs:
    """Return the logs of a run, through its runtime; raises HTTPException for none. Blocks."""
    store = open_store()
    if run.runtime == SIMULATED:
        raise HTTPException(404, "a simulated run prints nothing")
    try:
        runtime: Runtime = request.app.state.runtime_of(store.job(run.uid))
    except InputError as error:  # this server may not reach it, whatever is asked
        raise HTTPException(409, str(error)) from error
    return RunLogs(store=store, record=run, runtime=runtime)


def generation_of(run: RunRecord, chosen: AttemptId) -> str:
    """Changes when this log is replaced by another one of the same instance."""
    return f"{run.submitted_at:.3f}.{chosen.epoch}.{chosen.job_attempt}.{chosen.attempt}"


def chosen_attempt(instance: InstanceLogs, attempt: int | None) -> AttemptId | None:
    """Return that attempt, by default the newest; None for none; raises HTTPException."""
    try:
        return instance.chosen(attempt)
    except InputError as error:
        raise HTTPException(404, error.problems[0].message) from None


def _page(
    request: Request,
    run: RunRecord,
    role: str,
    index: int,
    attempt: int | None,
    *,
    offset: int,
    size: int,
    loop: asyncio.AbstractEventLoop,
) -> LogPage:
    logs = logs_of(request, run)
    instance = logs.instance(role, index)
    chosen = chosen_attempt(instance, attempt)
    if chosen is None:
        return LogPage(start=0, end=0, eof=instance.final(), generation="", text="")
    source = logs.open(instance, chosen, loop=loop)
    try:
        whole = source.size() if offset < 0 else None
        wanted = offset if offset >= 0 else max(0, (whole or 0) + offset)
        if wanted:
            source.read(0, 1)  # whether offsets are what its cursors are
        data, end, over = b"", wanted, False
        while len(data) < size:
            part = source.read(end, size - len(data))
            data, end, over = data + part.data, part.next_offset, part.end
            if over or not part.data:
                break
    finally:
        source.close()
    if not data and not over:  # nobody writes any more, though the runtime does not know its end
        over = instance.drained() or instance.after(chosen) is not None
    start = end - len(data)  # the beginning of a log may be gone
    if offset < 0 and start:
        skipped = data.find(b"\n") + 1
        if skipped < len(data):  # else it is all in one line
            start, data = start + skipped, data[skipped:]
    kept = data if over else _whole_lines(data, size=size)
    return LogPage(
        start=start,
        end=start + len(kept),
        eof=over and len(kept) == len(data),
        generation=generation_of(run, chosen),
        text=kept.decode(errors="replace"),
    )


def _whole_lines(data: bytes, *, size: int) -> bytes:
    """Return what ends with a line; of a line that is longer than `size`, what is whole characters."""
    end = data.rfind(b"\n") + 1
    if end:
        return data[:end]
    if len(data) < size:  # it is still being written
        return b""
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] & 0xC0 != 0x80:  # a character begins here
            is_whole = data[-back] < 0x80 or _characters(data[-back]) == back
            return data if is_whole or back == len(data) else data[:-back]
    return data


def _characters(first: int) -> int:
    """Return how many bytes the character has that begins with this one, in UTF-8."""
    return 2 if first < 0xE0 else 3 if first < 0xF0 else 4


@router.get("/dags/{dag}/trainings/{uid}/log/download")
async def download(
    request: Request,
    run: RunDep,
    role: RoleQuery,
    index: IndexQuery,
    attempt: AttemptQuery = None,
) -> StreamingResponse:
    """Return all that one attempt wrote so far, byte for byte."""
    runtime, ref = await asyncio.to_thread(_reference, request, run, role, index, attempt)
    first = await runtime.read_log(ref, Cursor(), limit=_SIZE)
    name = re.sub(r"[^A-Za-z0-9._-]", "_", f"{run.job}-{role}-{index}.{ref.attempt}.log")
    return StreamingResponse(
        _rest(runtime, ref, first),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "X-Content-Type-Options": "nosniff",
        },
    )


def _reference(
    request: Request, run: RunRecord, role: str, index: int, attempt: int | None
) -> tuple[Runtime, InstanceRef]:
    logs = logs_of(request, run)
    instance = logs.instance(role, index)
    chosen = chosen_attempt(instance, attempt)
    if chosen is None:
        raise HTTPException(404, f"{instance.name} was not started yet")
    return logs.runtime, instance.ref(chosen)


async def _rest(runtime: Runtime, ref: InstanceRef, chunk: LogChunk) -> AsyncIterator[bytes]:
    while chunk.data:
        yield chunk.data
        if chunk.end:
            return
        chunk = await runtime.read_log(ref, chunk.next, limit=_SIZE)

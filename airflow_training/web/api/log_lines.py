"""Logs by lines: those of all instances merged by time, only the serious ones, the next error, line number n.

However large logs are, one request reads a bounded part of them and says where the next one goes on.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import sys
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.concurrency import run_in_threadpool

from airflow_training.logs.diagnosis.severity import (
    SEVERITIES,
    Severity,
    next_error,
    previous_error,
    severities,
)
from airflow_training.logs.reading.line_index import LineIndexes
from airflow_training.logs.reading.merge import MergedLine
from airflow_training.logs.reading.source import Source
from airflow_training.logs.reading.windows import (
    page_after,
    page_before,
    window_after,
    window_before,
)
from airflow_training.state.records import RunRecord
from airflow_training.supervise.instance_logs import NewestLog, RunLogs
from airflow_training.web.api.logs import (
    AttemptQuery,
    IndexQuery,
    RoleQuery,
    chosen_attempt,
    generation_of,
    logs_of,
)
from airflow_training.web.models import LinePage, LinePlace, LogLine, NextError
from airflow_training.web.rights import RunDep, read_logs

__all__ = ["router"]

_WINDOWS_BYTES = 1 << 19
"""Of all logs together, that one page is made of."""
_LEAST_WINDOW, _LARGEST_WINDOW = 1 << 12, 1 << 18
_PAGE_BYTES = 1 << 18
_MOST_LOGS = 128
_LINE_BYTES = 1 << 14
_FOUND = 200
"""Serious lines after which a request looks no further."""
_SECONDS = 0.5
_SEARCHED_BYTES = 1 << 26
_COUNTED_BYTES = 1 << 27

router = APIRouter(dependencies=[Depends(read_logs)])
_indexes = LineIndexes()


@dataclass
class _OpenLogFile:
    log: NewestLog
    source: Source
    offset: int
    time: float


@router.get("/dags/{dag}/trainings/{uid}/log/lines")
async def lines(
    request: Request,
    run: RunDep,
    *,
    role: Annotated[str, Query(max_length=63)] = "",
    index: Annotated[int | None, Query(ge=0)] = None,
    first: Annotated[int, Query(ge=0)] = 0,
    count: Annotated[int | None, Query(ge=1)] = None,
    severity: Severity = "info",
    after: Annotated[str, Query(max_length=16_384)] = "",
    before: Annotated[str, Query(max_length=16_384)] = "",
) -> LinePage:
    """Return lines of the newest attempts merged by time, those of a severity and above.

    `first`, `count`: of the instances with an index from `first` on, so many.
    `after`, `before`: what an earlier page says. Neither: the end. `after=begin`: the beginning.
    """
    loop = asyncio.get_running_loop()
    if index is None:
        indexes = range(first, sys.maxsize if count is None else first + count)
    else:
        indexes = range(index, index + 1)
    return await run_in_threadpool(
        _lines, request, run, role, indexes, severity, after=after, before=before, loop=loop
    )


def _lines(
    request: Request,
    run: RunRecord,
    role: str,
    indexes: range,
    severity: Severity,
    *,
    after: str,
    before: str,
    loop: asyncio.AbstractEventLoop,
) -> LinePage:
    logs = logs_of(request, run)
    newest = [
        each
        for each in logs.newest()
        if role in ("", each.instance.role) and each.instance.index in indexes
    ]
    if len(newest) > _MOST_LOGS:
        raise HTTPException(
            422,
            f"{len(newest)} logs are more than {_MOST_LOGS}: choose a role, or some of its"
            " instances with first and count",
        )
    places = _places(after if after not in ("", "begin") else before)
    with _open(logs, newest, places, loop=loop) as opened:
        if after:
            return _forward(opened, severity)
        if not before:
            for each in opened:
                each.offset = each.source.size() or 0
        return _backward(opened, severity, from_end=not before)


@contextlib.contextmanager
def _open(
    logs: RunLogs,
    newest: Sequence[NewestLog],
    places: dict[str, tuple[int, int, float]],
    *,
    loop: asyncio.AbstractEventLoop,
) -> Iterator[list[_OpenLogFile]]:
    with contextlib.ExitStack() as stack:
        opened = []
        for each in newest:
            source = logs.open_ref(each.instance.name, each.ref, loop=loop)
            stack.callback(source.close)
            attempt, offset, at = places.get(each.instance.name, (-1, 0, each.begun))
            if attempt != each.ref.attempt:  # another one has begun since
                offset, at = 0, each.begun
            if offset:
                source.read(0, 1)  # whether offsets are what its cursors are
            opened.append(_OpenLogFile(each, source, offset, at))
        yield opened


def _forward(opened: list[_OpenLogFile], severity: Severity) -> LinePage:
    first = _cursor(opened)
    size = _window_size(opened)
    found: list[LogLine] = []
    until = time.monotonic() + _SECONDS
    while True:
        windows = [
            window_after(each.source, each.offset, size=size, time=each.time, over=each.log.over)
            for each in opened
        ]
        page, ends = page_after(windows, size=_PAGE_BYTES)
        for each, end in zip(opened, ends, strict=True):
            each.offset = end
        for merged in page:
            opened[merged.source].time = merged.time or 0.0
        found += _told(page, opened, severity)
        if not page or _enough(found, severity, until):
            break
    return LinePage(
        lines=found,
        before=first,
        after=_cursor(opened),
        begins=False,
        eof=not page and all(each.log.over for each in opened),
    )


def _backward(opened: list[_OpenLogFile], severity: Severity, *, from_end: bool) -> LinePage:
    last = _cursor(opened)
    size = _window_size(opened)
    found: list[LogLine] = []
    until = time.monotonic() + _SECONDS
    while True:
        windows = [
            window_before(
                each.source,
                each.offset,
                size=size,
                time=each.log.begun,
                growing=from_end and not each.log.over,
            )
            for each in opened
        ]
        if from_end:  # where a later page goes on
            for each, window in zip(opened, windows, strict=True):
                each.offset = window.end
                each.time = (window.lines[-1].time if window.lines else None) or each.time
            last, from_end = _cursor(opened), False
        page, starts = page_before(windows, size=_PAGE_BYTES)
        for each, start in zip(opened, starts, strict=True):
            each.offset = start
        found = _told(page, opened, severity) + found
        begins = not page or not any(each.offset for each in opened)
        if begins or _enough(found, severity, until):
            break
    return LinePage(lines=found, before=_cursor(opened), after=last, begins=begins, eof=False)


def _window_size(opened: Sequence[_OpenLogFile]) -> int:
    return min(_LARGEST_WINDOW, max(_LEAST_WINDOW, _WINDOWS_BYTES // max(1, len(opened))))


def _enough(found: Sequence[LogLine], severity: Severity, until: float) -> bool:
    return severity == "info" or len(found) >= _FOUND or time.monotonic() > until


def _told(
    page: Sequence[MergedLine], opened: Sequence[_OpenLogFile], severity: Severity
) -> list[LogLine]:
    texts = [
        each.line.line.data[:_LINE_BYTES].decode(errors="replace").rstrip("\r\n") for each in page
    ]
    classes: list[Severity] = ["info"] * len(page)
    order = sorted(range(len(page)), key=lambda place: page[place].source)
    for _, places in groupby(order, key=lambda place: page[place].source):
        mine = [*places]
        for place, said in zip(mine, severities(texts[each] for each in mine), strict=True):
            classes[place] = said
    least = SEVERITIES.index(severity)
    return [
        LogLine(
            role=opened[merged.source].log.instance.role,
            index=opened[merged.source].log.instance.index,
            attempt=opened[merged.source].log.ref.attempt,
            offset=merged.line.line.offset,
            time=merged.time,
            severity=said,
            text=text,
        )
        for merged, text, said in zip(page, texts, classes, strict=True)
        if SEVERITIES.index(said) >= least
    ]


def _cursor(opened: Sequence[_OpenLogFile]) -> str:
    places = {
        each.log.instance.name: (each.log.ref.attempt, each.offset, each.time) for each in opened
    }
    packed = zlib.compress(json.dumps(places, separators=(",", ":")).encode())
    return base64.urlsafe_b64encode(packed).decode()


def _places(cursor: str) -> dict[str, tuple[int, int, float]]:
    if not cursor:
        return {}
    try:
        unpacked = zlib.decompressobj().decompress(base64.urlsafe_b64decode(cursor), 1 << 17)
        found: dict[str, Any] = json.loads(unpacked)
        return {
            str(name): (int(attempt), max(0, int(offset)), float(at))
            for name, (attempt, offset, at) in found.items()
        }
    except (ValueError, TypeError, AttributeError, zlib.error):
        raise HTTPException(422, "after, before: no page says so") from None


@router.get("/dags/{dag}/trainings/{uid}/log/next-error")
async def find_next_error(
    request: Request,
    run: RunDep,
    role: RoleQuery,
    index: IndexQuery,
    attempt: AttemptQuery = None,
    offset: Annotated[int, Query(ge=0)] = 0,
    before: Annotated[int | None, Query(ge=0)] = None,
) -> NextError:
    """Return where the next line begins that is an error, from the beginning of a line on.

    `before`: the last one before the beginning of that line instead.
    """
    loop = asyncio.get_running_loop()
    if before is not None:
        return await run_in_threadpool(
            _previous_error, request, run, role, index, attempt, before=before, loop=loop
        )
    return await run_in_threadpool(
        _next_error, request, run, role, index, attempt, offset=offset, loop=loop
    )


def _next_error(
    request: Request,
    run: RunRecord,
    role: str,
    index: int,
    attempt: int | None,
    *,
    offset: int,
    loop: asyncio.AbstractEventLoop,
) -> NextError:
    with _one(request, run, role, index, attempt, loop=loop) as (source, _):
        if source is None:
            return NextError(offset=None, searched=0, ends=True)
        if offset:
            source.read(0, 1)
        stop = offset + _SEARCHED_BYTES
        found = next_error(source, start=offset, stop=stop)
        ends = found is None and not source.read(stop, 1).data
    return NextError(offset=found, searched=stop, ends=ends)


def _previous_error(
    request: Request,
    run: RunRecord,
    role: str,
    index: int,
    attempt: int | None,
    *,
    before: int,
    loop: asyncio.AbstractEventLoop,
) -> NextError:
    with _one(request, run, role, index, attempt, loop=loop) as (source, _):
        if source is None:
            return NextError(offset=None, searched=0, ends=True)
        source.read(0, 1)
        found, start = previous_error(source, stop=before, size=_SEARCHED_BYTES)
    return NextError(offset=found, searched=start, ends=found is None and start == 0)


@router.get("/dags/{dag}/trainings/{uid}/log/line")
async def find_line(
    request: Request,
    run: RunDep,
    role: RoleQuery,
    index: IndexQuery,
    number: Annotated[int, Query(ge=1, le=1 << 40)],
    attempt: AttemptQuery = None,
) -> LinePlace:
    """Return where line `number` begins, from 1. Asked again, it counts on from where it was."""
    loop = asyncio.get_running_loop()
    return await run_in_threadpool(
        _find_line, request, run, role, index, attempt, number=number, loop=loop
    )


def _find_line(
    request: Request,
    run: RunRecord,
    role: str,
    index: int,
    attempt: int | None,
    *,
    number: int,
    loop: asyncio.AbstractEventLoop,
) -> LinePlace:
    with _one(request, run, role, index, attempt, loop=loop) as (source, generation):
        if source is None:
            return LinePlace(offset=None, lines=0, bytes=0, ends=True)
        known = _indexes.of(run.uid, role, str(index), generation)
        if known.bytes:
            source.read(0, 1)
        more = known.count(source, number - 1, budget=_COUNTED_BYTES)
        place = known.offset(source, number - 1)
        return LinePlace(offset=place, lines=known.lines, bytes=known.bytes, ends=not more)


@contextlib.contextmanager
def _one(
    request: Request,
    run: RunRecord,
    role: str,
    index: int,
    attempt: int | None,
    *,
    loop: asyncio.AbstractEventLoop,
) -> Iterator[tuple[Source | None, str]]:
    """Give one attempt's log and its generation; None where it has none yet."""
    logs = logs_of(request, run)
    instance = logs.instance(role, index)
    chosen = chosen_attempt(instance, attempt)
    if chosen is None:
        yield None, ""
        return
    source = logs.open(instance, chosen, loop=loop)
    try:
        yield source, generation_of(run, chosen)
    finally:
        source.close()

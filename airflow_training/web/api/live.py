"""A run as it changes: server-sent events. Holds neither a thread nor a session while it waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Request
from fastapi.responses import StreamingResponse

from airflow_training.runtimes.clock import steady_now
from airflow_training.state.store import open_store
from airflow_training.web.live import RunFeeds, feeds_of
from airflow_training.web.rights import RunDep, may_act_on, read

__all__ = ["router", "stream"]

_SECONDS = 300.0
"""Then the browser opens it again, and rights are asked again."""
_HEARTBEAT_SECONDS = 15.0
_RETRY = "retry: 1000\n\n"

router = APIRouter()


@router.get("/dags/{dag}/trainings/{uid}/live", dependencies=[Depends(read)])
async def live(
    request: Request, run: RunDep, last_event_id: Annotated[str, Header()] = ""
) -> StreamingResponse:
    """Send the detail of a run at once, unless the browser has that one, and whenever it changes."""
    may_act = await asyncio.to_thread(may_act_on, request, run)
    events = stream(
        feeds_of(open_store()), run.uid, seen=last_event_id, may_act=may_act, seconds=_SECONDS
    )
    return StreamingResponse(
        events,
        media_type="text/event-stream",
        # a proxy that collects an answer before it passes it on would show nothing
        headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"},
    )


async def stream(
    feeds: RunFeeds,
    uid: str,
    *,
    seen: str,
    may_act: bool,
    seconds: float,
    heartbeat_seconds: float = _HEARTBEAT_SECONDS,
) -> AsyncGenerator[str, None]:
    """Yield the events of a run for so long. `seen`: id of what the page shows already."""
    yield _RETRY
    until = steady_now() + seconds
    async with feeds.following(uid) as feed:
        while not feed.over and (left := until - steady_now()) > 0:
            newest = feed.newest
            if newest is not None and newest.id != seen:
                seen = newest.id
                data = newest.for_actors if may_act else newest.for_readers
                yield f"id: {seen}\nevent: detail\ndata: {data}\n\n"
            elif not await feed.changed_within(min(left, heartbeat_seconds)):
                yield ": still there\n\n"
    yield _RETRY

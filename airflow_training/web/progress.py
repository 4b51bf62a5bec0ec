"""Where instances on a cluster report their progress. A pod is no user: each run has its own token.

The token lets its holder say how far the instances of that one run are, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any

from fastapi import APIRouter, Header, HTTPException, Request, Response

from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.progress import progress_of
from airflow_training.state.store import Store, open_store
from airflow_training.supervise.callbacks import is_token_of

__all__ = ["router"]

_BODY_BYTES = 1 << 16
_UID_CHARACTERS = 64

router = APIRouter()


@router.post("/runs/{uid}/progress", status_code=204)
async def report(
    uid: str, request: Request, authorization: Annotated[str, Header()] = ""
) -> Response:
    """Keep what an instance says about itself: `{role, index, job_attempt, attempt, progress}`.

    `progress` is empty where the script reports none; `environment`: the newest record of what the
    instance has around it; `software`: that of its Python and packages.

    401 without the run's token, 413 for more than 64 KiB, 400 for what cannot be read, 404 for an
    instance that the run does not have. What another attempt says than the present one is accepted and dropped.
    """
    scheme, _, token = authorization.partition(" ")
    # also for a run that does not exist: nobody learns here which ones do
    if (
        scheme.lower() != "bearer"
        or len(uid) > _UID_CHARACTERS
        or not await asyncio.to_thread(is_token_of, uid, token.strip())
    ):
        raise HTTPException(401, "the token of this run is needed")
    try:
        document = json.loads(await _body(request))
    except (ValueError, RecursionError):
        raise HTTPException(400, "the body is no JSON") from None
    await asyncio.to_thread(_save, open_store(), uid, document)
    return Response(status_code=204)


async def _body(request: Request) -> bytes:
    body = bytearray()
    async for block in request.stream():
        body += block
        if len(body) > _BODY_BYTES:
            raise HTTPException(413, f"progress is at most {_BODY_BYTES} bytes")
    return bytes(body)


def _save(store: Store, uid: str, document: Any) -> None:
    try:
        key = InstanceKey(str(document["role"]), int(document["index"]))
        reported = int(document["job_attempt"]), int(document["attempt"])
        progress = progress_of(document["progress"])
        records = [document.get("environment"), document.get("software")]
    except (KeyError, TypeError, ValueError, OverflowError):  # the last: an infinite index
        raise _unreadable() from None
    if progress is None or not all(isinstance(each, str | None) for each in records):
        raise _unreadable()
    state = store.read([uid]).get(uid)
    entry = state.ledger.instances.get(key) if state is not None else None
    if entry is None:
        raise HTTPException(404, f"the run has no instance {key.index} of role {key.role}")
    known = (entry.job_attempt, entry.attempt)
    replaced = reported < known
    if reported > known:  # intent comes first: what was never ordered does not exist
        return
    if replaced and not entry.host.uid:  # else that it has ended is what the next attempt waits for
        return
    if document["progress"] and not replaced:  # what its log says counts until the script speaks
        store.progress.save(uid, {key: progress})
    if lines := [each for each in records if each]:
        store.environments.save(uid, {key: lines})


def _unreadable() -> HTTPException:
    return HTTPException(400, "role, index, job_attempt, attempt and progress are needed")

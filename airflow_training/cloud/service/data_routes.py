"""How a sharing machine serves a run over HTTP, though nobody can reach it: it asks what is wanted, and sends that."""

from __future__ import annotations

import asyncio
import errno
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airflow_training.cloud.packing import PackHeader, PackReader
from airflow_training.cloud.service.run_data import RunData
from airflow_training.cloud.service.unneeded import trim_chunks
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.remote_data.chunks import CHUNK_BYTES, ChunkCache, digest_of_chunk
from airflow_training.remote_data.mailbox import asked_in
from airflow_training.settings import load_settings

__all__ = ["data_routes", "keep_chunks"]

_LONGEST_WAIT_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_LOOK_AFAR_SECONDS = 0.5
"""A storage that others reach too may charge for each look."""
_REVIVE_SECONDS = 2.0
_BODY_BYTES = 16 << 20
_MOST_REQUESTS = 512
_DIGEST = re.compile(r"[0-9a-f]{64}")

_TRIMMED_PART = 20
"""A storage is looked through each time that so small a part of its limit has come."""
DataOf = Callable[[Request], Awaitable[RunData]]


def data_routes(data_of: DataOf, is_over: Callable[[str], bool]) -> Sequence[Route]:
    """The routes below `/runs/{run}/data`.

    `data_of`: the data of the run in the path, for whoever may have it; `is_over`: whether a run is, by its id.
    """

    async def requests(request: Request) -> Response:
        """Files that are asked for, as soon as there are any; `over`: nothing is asked for any more."""
        data = await data_of(request)
        end = time.monotonic() + _wait_seconds(request)
        looked = 0.0
        while True:
            now = time.monotonic()
            over = False
            if now - looked > _REVIVE_SECONDS:
                looked = now
                over = await run_in_threadpool(is_over, data.run_id)
                if not over:
                    await run_in_threadpool(data.revive)
            await run_in_threadpool(data.see)
            names = [] if over else await run_in_threadpool(data.letters.requests)
            if names or over or now > end or await request.is_disconnected():
                return JSONResponse({"over": over, "requests": names[:_MOST_REQUESTS]})
            await asyncio.sleep(_LOOK_SECONDS if data.place.is_here else _LOOK_AFAR_SECONDS)

    async def missing(request: Request) -> Response:
        """Which of the chunks have not come yet, or are damaged."""
        data = await data_of(request)
        document = await _json(request)
        chunks = document.get("chunks")
        if not isinstance(chunks, list) or not all(_is_digest(each) for each in chunks):
            raise _mistake("chunks", "is no list of SHA-256 in hexadecimal")

        def lacking() -> Sequence[str]:
            return [each for each in dict.fromkeys(chunks) if data.chunks.get(each) is None]

        return JSONResponse({"missing": await run_in_threadpool(lacking)})

    async def chunks(request: Request) -> Response:
        """Chunks in a pack; those whose bytes are not those of their digest are not kept, and named."""
        data = await data_of(request)
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        try:
            received, damaged = await run_in_threadpool(keep_chunks, data.chunks, body)
        except OSError as error:  # a full disk: who follows the run is told, too
            await run_in_threadpool(data.note_trouble, error.errno or errno.EIO)
            raise
        if data.place.is_here:
            await run_in_threadpool(_ROOM.keep, data.place.storage, received)
        return JSONResponse({"received": received, "damaged": damaged})

    async def answers(request: Request) -> Response:
        """Of which chunks a file is made, all of which are here, or why it is refused."""
        data = await data_of(request)
        document = await _json(request)
        rows = document.get("answers")
        if not isinstance(rows, dict) or not all(map(_is_answer, rows.items())):
            raise _mistake("answers", "is no object of answers to requests")

        def keep() -> None:
            for name, answer in rows.items():
                data.letters.answer(name, answer)

        await run_in_threadpool(keep)
        return JSONResponse({"answered": len(rows)})

    async def show(request: Request) -> Response:
        """How it goes: what is waited for, what will not come, and counts."""
        data = await data_of(request)
        status = await run_in_threadpool(data.status)
        return JSONResponse({name: status.get(name) for name in ("waiting", "failure", "counts")})

    base = "/runs/{run}/data"
    return [
        Route(base, show),
        Route(f"{base}/requests", requests),
        Route(f"{base}/missing", missing, methods=["POST"]),
        Route(f"{base}/chunks", chunks, methods=["POST"]),
        Route(f"{base}/answers", answers, methods=["POST"]),
    ]


class _ChunkRoom:
    """Keeps chunks of an account below its part of the disk while they come."""

    def __init__(self) -> None:
        self._received: Counter[str] = Counter()

    def keep(self, storage: str, received: int) -> None:
        """Note what has come, and let the longest unread give way where that was much."""
        most = load_settings().cloud_account_gb * 10**9
        self._received[storage] += received
        if most and self._received[storage] > most // _TRIMMED_PART:
            self._received[storage] = 0
            trim_chunks(Path(storage), most_bytes=most)


_ROOM = _ChunkRoom()


def keep_chunks(cache: ChunkCache, body: bytes) -> tuple[int, Sequence[str]]:
    """Keep the chunks of a pack; returns the bytes that came, and the digests of those that are damaged."""
    reader, damaged, received = PackReader(), [], 0
    header: PackHeader | None = None
    content = b""

    for each in reader.feed(body):
        if isinstance(each, PackHeader):
            if not _is_digest(each.sha256) or each.offset or each.size > CHUNK_BYTES:
                raise _mistake("chunks", "holds something else than whole chunks")
            header, content = each, b""
            continue
        content += each.data
        if each.last and header is not None:
            received += len(content)
            if digest_of_chunk(content) == header.sha256:
                _keep(cache, header.sha256, content)
            else:
                damaged.append(header.sha256)
    if not reader.complete:
        raise _mistake("chunks", "ends in the middle")
    return received, damaged


def _keep(cache: ChunkCache, digest: str, content: bytes) -> None:
    try:
        cache.put(digest, content)
    except OSError as error:  # a full disk: it is sent again
        raise RuntimeUnavailable(f"data that comes cannot be kept: {error.strerror}") from error


def _wait_seconds(request: Request) -> float:
    try:
        seconds = float(request.query_params.get("wait", "0"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= _LONGEST_WAIT_SECONDS:
        raise _mistake("wait", f"has to be a number from 0 to {_LONGEST_WAIT_SECONDS:g}")
    return seconds


async def _body(request: Request) -> bytes:
    parts, size = [], 0
    async for piece in request.stream():
        size += len(piece)
        if size > _BODY_BYTES:
            raise InputError.of(
                code="out_of_range",
                field="body",
                message=f"is larger than {_BODY_BYTES >> 20} MiB",
            )
        parts.append(piece)
    return b"".join(parts)


async def _json(request: Request) -> Mapping[str, Any]:
    try:
        document = json.loads(await _body(request))
    except (ValueError, RecursionError):
        raise _mistake("", "is no JSON") from None
    if not isinstance(document, dict):
        raise _mistake("", "is no JSON object")
    return document


def _is_digest(value: Any) -> bool:
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def _is_answer(row: tuple[str, Any]) -> bool:
    name, answer = row
    if asked_in(name) is None or not isinstance(answer, dict):
        return False
    if "error" in answer:
        return all(isinstance(answer.get(each), str) for each in ("error", "message"))
    chunks = answer.get("chunks")
    return isinstance(chunks, list) and all(_is_digest(each) for each in chunks)


def _mistake(field: str, message: str) -> InputError:
    return InputError.of(code="wrong_type", field=field, message=message)

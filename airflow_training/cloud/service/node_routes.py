"""How a node fetches that does not see the service's folder: as `remote_data.server.HttpSource` asks.

Its address is `http_address(URL/training/cloud/v1/runs/RUN/data, RunData.node_token)`. What has not come is asked of the
sharing machine, and the node asks again.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Callable, Sequence

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from airflow_training.cloud.service.run_data import RunData
from airflow_training.remote_data.chunks import open_chunk_store
from airflow_training.remote_data.errors import DataError, DataNotShared, SourceAway
from airflow_training.remote_data.mailbox import MailboxSource
from airflow_training.remote_data.manifest import DataFile, DataRoot

__all__ = ["node_routes"]


class _WrongTokenError(Exception):
    """Of a run that there is, or is not: nobody learns which."""


class _Node:
    """One run's data for one question."""

    def __init__(self, data: RunData, request: Request) -> None:
        manifest = data.manifest
        # a node that waits holds no thread of the service: it asks again
        self.source = MailboxSource(
            manifest, open_chunk_store(data.place.storage), answer_seconds=0.0
        )
        asked = request.query_params
        found = [
            (root, file)
            for root in manifest.roots
            for file in root.files
            if (root.name, file.path) == (asked.get("root"), asked.get("path"))
        ]
        if not found:
            raise DataNotShared(f"{asked.get('path')!r} was not shown before submission")
        self.root: DataRoot = found[0][0]
        self.file: DataFile = found[0][1]
        self.part = _number(asked["range"], "range") if "range" in asked else None


def _number(text: str, kind: str) -> int:
    if not text.isdecimal() or len(text) > 9:
        raise DataNotShared(f"{text!r} is no number of a {kind}")
    return int(text)


def node_routes(data_of: Callable[[str], RunData | None]) -> Sequence[Route]:
    """The routes below `/runs/{run}/data`; `data_of`: the data of a run by its id, None where it has none."""

    async def digests(request: Request) -> Response:
        """The SHA-256 of a file's chunks."""

        def find() -> bytes:
            node = _Node(_data(request, data_of), request)
            found = node.source.digests(node.root, node.file, node.part)
            return json.dumps({"chunks": [*found]}).encode()

        return await _answer(find)

    async def chunk(request: Request) -> Response:
        """The bytes of a chunk."""

        def find() -> bytes:
            data = _data(request, data_of)
            index = _number(request.query_params.get("index", ""), "chunk")
            node = _Node(data, request)
            if index >= len(node.source.digests(node.root, node.file, node.part)):
                raise DataNotShared(f"{node.file.path} has no chunk {index}")
            return node.source.chunk(node.root, node.file, index, node.part)

        return await _answer(find)

    base = "/runs/{run}/data"
    return [Route(f"{base}/digests", digests), Route(f"{base}/chunk", chunk)]


def _data(request: Request, data_of: Callable[[str], RunData | None]) -> RunData:
    data = data_of(str(request.path_params["run"]))
    told = request.headers.get("Authorization", "")
    if data is None or not hmac.compare_digest(told.encode(), f"Bearer {data.node_token}".encode()):
        raise _WrongTokenError
    return data


async def _answer(find: Callable[[], bytes]) -> Response:
    try:
        content = await run_in_threadpool(find)
    except _WrongTokenError:
        return JSONResponse({"error": "DataNotShared", "message": "wrong token"}, status_code=401)
    except DataError as error:
        code = 503 if isinstance(error, SourceAway) else 409
        return JSONResponse({"error": error.reason, "message": str(error)}, status_code=code)
    return Response(content, media_type="application/octet-stream")

"""The sharing machine answers over HTTP: read-only, to who has the token, files of the manifest only."""

from __future__ import annotations

import contextlib
import hmac
import http.client
import json
import secrets
import socket
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from airflow_training.remote_data.chunks import digest_of_chunk
from airflow_training.remote_data.errors import DataError, DataNotShared, SourceAway, error_of
from airflow_training.remote_data.manifest import DataFile, DataRoot
from airflow_training.remote_data.roots import SharedRoots

__all__ = ["DataServer", "HttpSource", "start_server"]

_TIMEOUT_SECONDS = 30.0
_DIGEST = "X-Chunk"
"""The SHA-256 of the only chunk of a file, where the chunk itself is the answer."""


class DataServer:
    """A running server; `url` and `token` are all that a node needs."""

    def __init__(self, server: _ConnectionServer, token: str) -> None:
        """Serve in a thread of this process until `close`."""
        self._server = server
        self.token = token
        host, port = server.server_address[:2]
        self.url = f"http://{host!s}:{port}"
        self._thread = threading.Thread(
            target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop answering; nodes wait until another server is there."""
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()


def start_server(
    shared: SharedRoots, *, host: str = "127.0.0.1", port: int = 0, token: str = ""
) -> DataServer:
    """Serve the shared roots; `port` 0 takes a free one, a `token` is made where none is given."""
    token = token or secrets.token_urlsafe(24)

    class Handler(_SharedHandler):
        roots = shared
        bearer = token

    return DataServer(_ConnectionServer((host, port), Handler), token)


class _ConnectionServer(ThreadingHTTPServer):
    """Knows who is connected: connections outlive a server that only stops to listen."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, *args: Any) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__(*args)

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        for connection in list(self._connections):
            with contextlib.suppress(OSError):  # it has just ended
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a node that went away asks again."""


class _SharedHandler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT_SECONDS
    disable_nagle_algorithm = True
    roots: SharedRoots
    bearer: str

    def do_GET(self) -> None:  # the standard library's
        told = self.headers.get("Authorization", "")
        if not hmac.compare_digest(told.encode(), f"Bearer {self.bearer}".encode()):
            self._answer(401, b'{"error": "DataNotShared", "message": "wrong token"}')
            return
        parts = urlsplit(self.path)
        asked = {
            name: values[0]
            for name, values in parse_qs(parts.query, errors="surrogateescape").items()
        }
        root, path = asked.get("root", ""), asked.get("path", "")
        try:
            if parts.path == "/digests":
                data = self.roots.only_chunk(root, path) if "chunk" in asked else b""
                if data:
                    self._answer(200, data, digest=digest_of_chunk(data))
                    return
                found = list(self.roots.digests(root, path, _part(asked)))
                self._answer(200, json.dumps({"chunks": found}).encode())
            elif parts.path == "/chunk":
                index = _index(asked.get("index", ""))
                self._answer(200, self.roots.chunk(root, path, index, _part(asked)))
            else:
                raise DataNotShared(f"{parts.path}: nothing is there")
        except DataError as error:
            told = json.dumps({"error": error.reason, "message": str(error)})
            self._answer(409, told.encode())
        except (OSError, IndexError) as error:
            told = json.dumps({"error": DataNotShared.reason, "message": str(error)})
            self._answer(409, told.encode())

    def _answer(self, status: int, content: bytes, *, digest: str = "") -> None:
        self.send_response(status)
        if digest:
            self.send_header(_DIGEST, digest)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the standard library's
        """Say nothing: what is fetched is told by who fetches it."""


def _index(text: str) -> int:
    if not (text.isdecimal() and len(text) < 19):
        raise DataNotShared(f"{text!r} is no number of a chunk")
    return int(text)


def _part(asked: Mapping[str, str]) -> int | None:
    return _index(asked["range"]) if "range" in asked else None


class HttpSource:
    """A `DataServer` from a node, by one connection for each thread."""

    def __init__(self, url: str, token: str) -> None:
        """As `DataServer` has them."""
        parts = urlsplit(url)
        self._url = url.rstrip("/")
        self._netloc, self._below = parts.netloc, parts.path.rstrip("/")
        self._connect = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        self._headers = {"Authorization": f"Bearer {token}"}
        self._local = threading.local()

    def digests(self, root: DataRoot, file: DataFile, part: int | None = None) -> Sequence[str]:
        asked = {"root": root.name, "path": file.path, **_range_of(part)}
        return self._digests_in(self._get("/digests", **asked)[0])

    def only_chunk(self, root: DataRoot, file: DataFile) -> tuple[Sequence[str], bytes]:
        content, digest = self._get("/digests", root=root.name, path=file.path, chunk="1")
        return ([digest], content) if digest else (self._digests_in(content), b"")

    def _digests_in(self, content: bytes) -> Sequence[str]:
        try:
            return [str(each) for each in json.loads(content)["chunks"]]
        except (ValueError, KeyError, TypeError) as error:
            raise SourceAway(f"{self._url} answers what is no list of digests") from error

    def chunk(self, root: DataRoot, file: DataFile, index: int, part: int | None = None) -> bytes:
        asked = {"root": root.name, "path": file.path, "index": str(index), **_range_of(part)}
        return self._get("/chunk", **asked)[0]

    def _get(self, route: str, **asked: str) -> tuple[bytes, str]:
        """Return what is answered, and the digest that stands above it."""
        connection = getattr(self._local, "connection", None)
        if connection is None:
            connection = self._connect(self._netloc, timeout=_TIMEOUT_SECONDS)
            self._local.connection = connection
        try:
            query = urlencode(asked, errors="surrogateescape")  # names that are no UTF-8
            connection.request("GET", f"{self._below}{route}?{query}", headers=self._headers)
            answer = connection.getresponse()
            content: bytes = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            self._local.connection = None
            raise SourceAway(f"{self._url} does not answer: {error}") from error
        if answer.status == 200:
            return content, answer.headers.get(_DIGEST, "")
        try:
            told = json.loads(content)
            reason, message = str(told["error"]), str(told["message"])
        except (ValueError, KeyError, TypeError) as error:
            raise SourceAway(f"{self._url} answers {answer.status}") from error
        raise error_of(reason, message)


def _range_of(part: int | None) -> Mapping[str, str]:
    return {} if part is None else {"range": str(part)}

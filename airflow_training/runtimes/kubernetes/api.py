"""A thin client of the Kubernetes API: JSON in, JSON out, with retries, limits and typed errors.

Documents stay plain dictionaries: building model objects for thousands of pods costs more than
everything else here together.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import re
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow_training.errors import RuntimeUnavailable, TrainingError
from airflow_training.runtimes.kubernetes.connection import Connect
from airflow_training.runtimes.kubernetes.kinds import PODS, REVIEWS, ResourceKind

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientWebSocketResponse
    from kubernetes_asyncio.client import ApiClient

__all__ = [
    "AlreadyExists",
    "Api",
    "ApiError",
    "Conflict",
    "Forbidden",
    "Invalid",
    "NotFound",
    "ResourceVersionExpired",
]

_WRITES_IN_FLIGHT = 50
_CALL_SECONDS = 30.0
"""Longest single request."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_DEAF_SECONDS = 100.0
"""A watch that is silent for longer has lost its connection: a server sends bookmarks by the minute."""
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Of streams that may be silent for long: seconds, seconds, how often."""
_PAGE = 500
_TRANSIENT = frozenset({429, 500, 502, 503, 504})
_FIELD_MANAGER = "airflow-training"
_WEBHOOK_AWAY = "failed calling webhook"
_STRICT: Mapping[str, str] = {"fieldValidation": "Strict"}
"""Of every object we write: a field that the server does not know is refused, not dropped."""
_UNKNOWN_FIELD = re.compile(
    r'unknown field "(?P<strict>[^"]+)"|(?:^|[\s\n:])\.(?P<applied>\S+): field not declared in schema'
)
"""In the words of its decoder, and of server-side apply."""


class ApiError(TrainingError):
    """The server refused a request; carries its own words."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        kind: str = "",
        fields: Sequence[str] = (),
    ) -> None:
        """`kind`, `fields`: what it is about, where the server says so (`services`, `metadata.name`)."""
        super().__init__(message or reason or f"HTTP {code}")
        self.code = code
        self.reason = reason
        self.kind = kind
        self.fields = fields


class NotFound(ApiError):
    """There is no such object, namespace or kind."""


class AlreadyExists(ApiError):
    """An object of this name is there."""


class Conflict(ApiError):
    """The object changed meanwhile, or is not the one (uid) that was meant."""


class ResourceVersionExpired(ApiError):
    """The resource version is too old to watch from: list again."""


class Forbidden(ApiError):
    """Rights, a quota or an admission rule do not allow it."""


class Invalid(ApiError):
    """The document is not acceptable."""


_BY_CODE: Mapping[int, type[ApiError]] = {
    400: Invalid,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: ResourceVersionExpired,
    422: Invalid,
}


@dataclass(eq=False)
class _Session:
    """What belongs to one event loop."""

    clients: list[ApiClient]
    """The newest one is used; the one before it, whose credentials ran out, may still end a call."""
    writes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_WRITES_IN_FLIGHT))
    renewal: asyncio.Lock = field(default_factory=asyncio.Lock)
    gave_up_at: float = 0.0
    """When a write found that the server does not answer (monotonic)."""

    @property
    def client(self) -> ApiClient:
        return self.clients[-1]


class Api:
    """One cluster under one connection; may be used from several event loops, one after another.

    Every call raises an ApiError that says what the server said, or RuntimeUnavailable after
    it was tried again for `budget_seconds` without an answer.
    """

    def __init__(
        self, connect: Connect, connection: str = "", *, budget_seconds: float = 20.0
    ) -> None:
        self._connect = connect
        self._connection = connection
        self._budget = budget_seconds
        self._open: dict[asyncio.AbstractEventLoop, asyncio.Task[_Session]] = {}
        self._holders: dict[asyncio.AbstractEventLoop, AsyncIterator[_Session]] = {}
        self.requests: Counter[str] = Counter()
        """Verb and resource -> how often the server was asked."""

    # objects -----------------------------------------------------------------------------------
    async def get(self, kind: ResourceKind, namespace: str, name: str) -> dict[str, Any]:
        """Return one object."""
        found: dict[str, Any] = await self._call(
            "GET", kind.path(namespace, name), what=f"get {kind}"
        )
        return found

    async def list(
        self, kind: ResourceKind, namespace: str = "", *, selector: str = "", fields: str = ""
    ) -> tuple[Sequence[dict[str, Any]], str]:
        """Return all objects that match, and the resource version of that moment."""
        items: list[dict[str, Any]] = []
        query = {"labelSelector": selector, "fieldSelector": fields, "limit": str(_PAGE)}
        while True:
            try:
                page = await self._call(
                    "GET", kind.path(namespace), query=query, what=f"list {kind}"
                )
            except ResourceVersionExpired:
                if not query.pop("continue", None):
                    raise
                items.clear()  # it took too long from page to page: from the start
                continue
            items += page.get("items") or ()
            about = page.get("metadata") or {}
            if not about.get("continue"):
                return items, about.get("resourceVersion", "")
            query["continue"] = about["continue"]

    async def create(
        self,
        kind: ResourceKind,
        namespace: str,
        document: Mapping[str, Any],
        *,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Return the object as it was made; raises AlreadyExists.

        A try whose answer was lost may have made it: then a later try says AlreadyExists too.
        `dry_run`: the server says whether it would, and makes nothing.
        """
        return await self._write(
            "POST",
            kind.path(namespace),
            query={**_STRICT, "dryRun": "All" if dry_run else ""},
            body=document,
            what=f"create {kind}",
        )

    async def replace(
        self, kind: ResourceKind, namespace: str, document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Write an object as it is here; raises Conflict when its resource version is not the newest."""
        name = document["metadata"]["name"]
        return await self._write(
            "PUT",
            kind.path(namespace, name),
            query=_STRICT,
            body=document,
            what=f"update {kind}",
        )

    async def apply(
        self, kind: ResourceKind, namespace: str, document: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Make the object, or bring it to what the document says (server-side apply)."""
        return await self._write(
            "PATCH",
            kind.path(namespace, document["metadata"]["name"]),
            query={**_STRICT, "fieldManager": _FIELD_MANAGER, "force": "true"},
            content_type="application/apply-patch+yaml",
            body=document,
            what=f"patch {kind}",
        )

    async def patch(
        self, kind: ResourceKind, namespace: str, name: str, change: Any
    ) -> dict[str, Any]:
        """Change parts of an object by a JSON merge patch."""
        return await self._write(
            "PATCH",
            kind.path(namespace, name),
            content_type="application/merge-patch+json",
            body=change,
            what=f"patch {kind}",
        )

    async def delete(
        self,
        kind: ResourceKind,
        namespace: str,
        name: str,
        *,
        uid: str = "",
        grace_seconds: int | None = None,
    ) -> None:
        """Ask for the end of one object; with `uid` only of that very one (else Conflict).

        What is gone already is as it should be.
        """
        options: dict[str, Any] = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        with contextlib.suppress(NotFound):
            await self._write(
                "DELETE", kind.path(namespace, name), body=options, what=f"delete {kind}"
            )

    async def watch(
        self,
        kind: ResourceKind,
        namespace: str,
        *,
        selector: str,
        resource_version: str,
        timeout_seconds: int,
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (type, object) after `resource_version`, bookmarks too, until the server ends it.

        Raises Expired where one must list again. A broken connection just ends it.
        """
        query = {
            "watch": "true",
            "allowWatchBookmarks": "true",
            "labelSelector": selector,
            "resourceVersion": resource_version,
            "timeoutSeconds": str(timeout_seconds),
        }
        path = kind.path(namespace)
        async with self._stream(
            path,
            query=query,
            what=f"watch {kind}",
            seconds=min(timeout_seconds + 15.0, _DEAF_SECONDS),
        ) as response:
            async for line in _lines(response):
                if not line.strip():
                    continue
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise RuntimeUnavailable(f"watch {kind}: no answer of a cluster") from error
                if event["type"] == "ERROR":
                    status = event["object"]
                    if status.get("code") == 410:
                        raise _error(410, status)
                    raise RuntimeUnavailable(f"watch {kind}: {status.get('message', '')}")
                yield event["type"], event["object"]

    # what belongs to pods ----------------------------------------------------------------------
    async def log(
        self,
        namespace: str,
        pod: str,
        *,
        container: str,
        previous: bool = False,
        timestamps: bool = False,
        since_time: str = "",
        tail_lines: int | None = None,
        limit_bytes: int | None = None,
    ) -> bytes:
        """Return what a container printed; raises Invalid while it has not started."""
        query = {
            "container": container,
            "previous": "true" if previous else "",
            "timestamps": "true" if timestamps else "",
            "sinceTime": since_time,
            "tailLines": "" if tail_lines is None else str(tail_lines),
            "limitBytes": "" if limit_bytes is None else str(limit_bytes),
        }
        found: bytes = await self._call(
            "GET", PODS.path(namespace, pod, "log"), query=query, what="get pods/log", raw=True
        )
        return found

    async def follow_log(
        self, namespace: str, pod: str, *, container: str, since_time: str, silent_seconds: float
    ) -> AsyncIterator[bytes]:
        """Yield a container's log with time stamps, as it comes and until the container has ended.

        The first thing that is yielded is empty: the log is open. Raises RuntimeUnavailable where
        the connection breaks, or brings nothing for `silent_seconds`.
        """
        import aiohttp

        path = PODS.path(namespace, pod, "log")
        query = {
            "container": container,
            "follow": "true",
            "timestamps": "true",
            "sinceTime": since_time,
        }
        async with self._stream(
            path, query=query, what="get pods/log", seconds=silent_seconds
        ) as response:
            _probe(response)
            yield b""
            try:
                async for block in response.content.iter_any():
                    yield block
            except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError) as error:
                raise RuntimeUnavailable(f"the log of {pod} broke off: {error}") from error

    @contextlib.asynccontextmanager
    async def exec(
        self,
        namespace: str,
        pod: str,
        query: Sequence[tuple[str, str]],
        *,
        protocols: Sequence[str],
    ) -> AsyncIterator[ClientWebSocketResponse]:
        """Open the streams of a command in a container; not tried again, as it may have begun."""
        import aiohttp
        from yarl import URL

        client = (await self._session()).client
        self.requests["create pods/exec"] += 1
        headers: dict[str, str] = {}
        await client.update_params_for_auth(headers, [], ["BearerToken"])
        path = f"{client.configuration.host}{PODS.path(namespace, pod, 'exec')}"
        try:
            async with client.rest_client.pool_manager.ws_connect(
                URL(f"{path}?{urlencode(query)}", encoded=True),
                headers=headers,
                protocols=protocols,
                max_msg_size=0,
                proxy=client.rest_client.proxy,
                proxy_headers=client.rest_client.proxy_headers,
            ) as socket:
                yield socket
        except aiohttp.WSServerHandshakeError as error:
            raise _error(error.status, {"message": f"HTTP {error.status}"}) from error
        except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError) as error:
            message = f"the cluster does not answer (create pods/exec): {error}"
            raise RuntimeUnavailable(message) from error

    # the cluster itself ------------------------------------------------------------------------
    async def allowed(
        self, verb: str, kind: ResourceKind, namespace: str = "", subresource: str = ""
    ) -> bool:
        """Return whether we may do this (a self-subject access review)."""
        attributes = {
            "verb": verb,
            "group": kind.group,
            "version": kind.version,
            "resource": kind.plural,
            "subresource": subresource,
            "namespace": namespace if kind.namespaced else "",
        }
        review = {
            "apiVersion": f"{REVIEWS.group}/{REVIEWS.version}",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {k: v for k, v in attributes.items() if v}},
        }
        answer = await self._write("POST", REVIEWS.path(), body=review, what=f"create {REVIEWS}")
        return bool((answer.get("status") or {}).get("allowed"))

    async def serves(self, kind: ResourceKind) -> bool:
        """Return whether the cluster knows the kind (its custom resource is installed)."""
        try:
            found = await self._call("GET", f"/apis/{kind.group}/{kind.version}", what="discover")
        except NotFound:
            return False
        return any(each.get("name") == kind.plural for each in found.get("resources") or ())

    # inside ------------------------------------------------------------------------------------
    async def _write(self, method: str, path: str, *, what: str, **more: Any) -> dict[str, Any]:
        session = await self._session()
        asked_at = time.monotonic()
        async with session.writes:
            if session.gave_up_at > asked_at:
                # not each of a thousand for itself, fifty at a time
                raise RuntimeUnavailable(f"the cluster does not answer ({what})")
            try:
                answer: dict[str, Any] = await self._call(method, path, what=what, **more)
            except RuntimeUnavailable:
                session.gave_up_at = time.monotonic()
                raise
            return answer

    async def _call(
        self,
        method: str,
        path: str,
        *,
        what: str,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
        raw: bool = False,
    ) -> Any:
        """Return the answer's JSON (`raw`: its bytes), trying again what may pass."""
        import aiohttp

        until = time.monotonic() + self._budget
        pause = _FIRST_PAUSE_SECONDS
        renewed = False
        while True:
            session = await self._session()
            client = session.client
            self.requests[what] += 1
            wait: float | None = None
            try:
                response = await client.call_api(
                    path,
                    method,
                    query_params=[(key, value) for key, value in (query or {}).items() if value],
                    header_params={"Content-Type": content_type, "Accept": "application/json"}
                    if not raw
                    else {"Accept": "*/*"},
                    body=body,
                    auth_settings=["BearerToken"],
                    _preload_content=False,
                    _request_timeout=_CALL_SECONDS,
                )
                async with response:
                    content = await response.read()
                    if response.status < 300:
                        return content if raw else json.loads(content)
                    status = _status(content)
                    if response.status == 401 and not renewed:
                        renewed = True  # a short-lived token: ask for a new one, once
                        await self._renew(session, client)
                        continue
                    if not _passes(response.status, method, status):
                        raise _error(response.status, status)
                    why = status.get("message") or f"HTTP {response.status}"
                    with contextlib.suppress(ValueError):
                        wait = float(response.headers.get("Retry-After", ""))
            except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError) as error:
                why = str(error) or type(error).__name__
            except json.JSONDecodeError as error:  # of a proxy that is in the way
                why = f"no answer of a cluster: {error}"
            left = until - time.monotonic()
            if wait is not None:
                wait *= random.uniform(1.0, 1.25)  # noqa: S311 - others were told the same
            else:
                wait = pause * random.uniform(0.5, 1.5)  # noqa: S311 - jitter, no secret
                pause = min(pause * 2, _LONGEST_PAUSE_SECONDS)
            if wait > left:
                raise RuntimeUnavailable(f"the cluster does not answer ({what}): {why}")
            await asyncio.sleep(wait)

    @contextlib.asynccontextmanager
    async def _stream(
        self, path: str, *, query: Mapping[str, str], what: str, seconds: float | None
    ) -> AsyncIterator[ClientResponse]:
        """Open a long answer, silent for at most `seconds`."""
        import aiohttp

        session = await self._session()
        client = session.client
        self.requests[what] += 1
        try:
            response = await client.call_api(
                path,
                "GET",
                query_params=[(key, value) for key, value in query.items() if value],
                auth_settings=["BearerToken"],
                _preload_content=False,
                _request_timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=_CALL_SECONDS, sock_read=seconds
                ),
            )
        except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError) as error:
            raise RuntimeUnavailable(f"the cluster does not answer ({what}): {error}") from error
        async with response:
            if response.status >= 300:
                status = _status(await response.read())
                if response.status == 401:
                    await self._renew(session, client)
                if response.status == 401 or response.status in _TRANSIENT:
                    message = status.get("message") or f"HTTP {response.status}"
                    raise RuntimeUnavailable(f"the cluster does not answer ({what}): {message}")
                raise _error(response.status, status)
            yield response

    async def _session(self) -> _Session:
        loop = asyncio.get_running_loop()
        if loop not in self._open:
            # `asyncio.run` finishes the loop's generators: so the connection is closed in time
            self._holders[loop] = self._hold(loop)
            self._open[loop] = loop.create_task(anext(self._holders[loop]))  # type: ignore[arg-type]  # an awaitable of a generator is a coroutine
        opening = self._open[loop]
        try:
            return await asyncio.shield(opening)
        except BaseException:
            if opening.done() and self._open.get(loop) is opening:
                del self._open[loop]  # the next call tries again
            raise

    async def _hold(self, loop: asyncio.AbstractEventLoop) -> AsyncIterator[_Session]:
        session = _Session(clients=[await self._client()])
        try:
            yield session
        finally:
            self._open.pop(loop, None)
            self._holders.pop(loop, None)
            for client in session.clients:
                await client.close()

    async def _client(self) -> ApiClient:
        try:
            client = await self._connect(self._connection)
        except (OSError, asyncio.TimeoutError) as error:
            raise RuntimeUnavailable(f"cannot connect to the cluster: {error}") from error
        client.user_agent = f"airflow-training/{version('airflow-training')}"
        return client

    async def _renew(self, session: _Session, refused: ApiClient) -> None:
        """Connect anew: the credentials of a client were refused."""
        async with session.renewal:
            if session.client is not refused:
                return
            session.clients.append(await self._client())
            while len(session.clients) > 2:
                await session.clients.pop(0).close()


async def _lines(response: ClientResponse) -> AsyncIterator[bytes]:
    """Yield whole lines of any length; a line that was cut off is dropped."""
    rest = b""
    async for block in _blocks(response):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line


async def _blocks(response: ClientResponse) -> AsyncIterator[bytes]:
    """Yield what arrives; a connection that breaks just ends it."""
    import aiohttp

    try:
        async for block in response.content.iter_any():
            yield block
    except (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError):
        return


def _probe(response: ClientResponse) -> None:
    """Have the kernel ask whether the other side of a silent connection is still there."""
    transport = None if response.connection is None else response.connection.transport
    connected = None if transport is None else transport.get_extra_info("socket")
    if connected is None:
        return
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _PROBES.items():
        if hasattr(socket, name):  # not each system calls them so
            connected.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _passes(code: int, method: str, status: Mapping[str, Any]) -> bool:
    """Return whether the same request may be accepted a moment later."""
    if code in _TRANSIENT:
        # a webhook that is away is not the server: who asks is told, and others are answered
        message = str(status.get("message"))
        return _WEBHOOK_AWAY not in message and _UNKNOWN_FIELD.search(message) is None
    # two creates raced for one quota: nothing exists yet, the server asks to try again
    return code == 409 and method == "POST" and status.get("reason") != "AlreadyExists"


def _status(content: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {"message": content[:500].decode(errors="replace").strip()}
    return found if isinstance(found, Mapping) else {}


def _error(code: int, status: Mapping[str, Any]) -> ApiError:
    reason = str(status.get("reason") or "")
    kind = AlreadyExists if reason == "AlreadyExists" else _BY_CODE.get(code, ApiError)
    about = status.get("details") or {}
    message = str(status.get("message") or "")
    fields = [each.get("field", "") for each in about.get("causes") or ()]
    unknown = [found[1] or found[2] for found in _UNKNOWN_FIELD.finditer(message)]
    return kind(
        code,
        reason,
        message,
        kind=str(about.get("kind") or ""),
        fields=tuple(filter(None, fields or unknown)),
    )

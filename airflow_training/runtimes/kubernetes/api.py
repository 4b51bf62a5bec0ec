"""A thin client of the Kubernetes API: JSON in, JSON out, with retries, limits and typed errors.

Documents stay plain dictionaries: building model objects for thousands of pods costs more than
everything else here together.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import math
import random
import socket
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes.api_errors import (
    TRANSIENT,
    ApiError,
    NotFound,
    ResourceVersionExpired,
    error_of,
    may_pass,
    status_of,
)
from airflow_training.runtimes.kubernetes.api_sessions import ApiSessions
from airflow_training.runtimes.kubernetes.connection import Connect
from airflow_training.runtimes.kubernetes.kinds import PODS, REVIEWS, ResourceKind

if TYPE_CHECKING:
    from aiohttp import ClientResponse, ClientWebSocketResponse

__all__ = ["Api", "Hearing"]

_CALL_SECONDS = 30.0
"""Longest single request."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_DEAF_SECONDS = 100.0
"""A watch that is silent for longer has lost its connection: a server sends bookmarks by the minute."""
_PROBES = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 3}
"""Of streams that may be silent for long: seconds, seconds, how often."""
_PAGE = 500
_FIELD_MANAGER = "airflow-training"
_STRICT: Mapping[str, str] = {"fieldValidation": "Strict"}
"""Of every object we write: a field that the server does not know is refused, not dropped."""


@dataclass(slots=True)
class Hearing:
    """When a server last said anything, whatever it was asked; shared by all that ask it."""

    at: float = 0.0
    """Of the monotonic clock."""

    def note(self) -> None:
        """It has said something now."""
        self.at = time.monotonic()


class Api:
    """One cluster under one connection; may be used from several event loops, one after another.

    Every call raises an ApiError that says what the server said, or RuntimeUnavailable after
    it was tried again for `budget_seconds` without an answer.
    """

    def __init__(
        self,
        connect: Connect,
        connection: str = "",
        *,
        budget_seconds: float = 20.0,
        hearing: Hearing | None = None,
    ) -> None:
        """`hearing`: shared with others that ask the same server."""
        self._sessions = ApiSessions(connect, connection)
        self._budget = budget_seconds
        self._hearing = hearing or Hearing()
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
        silent_seconds: float = math.inf,
    ) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Yield (type, object) after `resource_version`, bookmarks too, until the server ends it.

        Raises Expired where one must list again. A broken connection just ends it. Half of `silent_seconds`
        after the server's last word, whatever it was about, it is asked whether it is there;
        RuntimeUnavailable where it says nothing in the other half, though its connections stay.
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
            blocks, half = _blocks(response), silent_seconds / 2
            if not math.isinf(half):
                ask = functools.partial(self._ask, kind, namespace, seconds=half)
                blocks = _heard(blocks, ask, self._hearing, quiet_seconds=half)
            async for line in _lines(blocks):
                if not line.strip():
                    continue
                try:
                    event = json.loads(line)
                except ValueError as error:
                    raise RuntimeUnavailable(f"watch {kind}: no answer of a cluster") from error
                if event["type"] == "ERROR":
                    status = event["object"]
                    if status.get("code") == 410:
                        raise error_of(410, status)
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
        """Bytes that a container printed; raises Invalid while it has not started."""
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
                    self._hearing.note()
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

        client = (await self._sessions.current()).client
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
            raise error_of(error.status, {"message": f"HTTP {error.status}"}) from error
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
    async def _ask(self, kind: ResourceKind, namespace: str, *, seconds: float) -> None:
        """Ask for one object from the server's memory; raises RuntimeUnavailable without an answer of any kind."""
        query = {"limit": "1", "resourceVersion": "0"}
        call = self._call("GET", kind.path(namespace), query=query, what=f"look for {kind}")
        asked_at = time.monotonic()
        try:
            await asyncio.wait_for(call, seconds)
        except ApiError:
            pass  # what it refuses it has heard
        except (RuntimeUnavailable, asyncio.TimeoutError):
            if self._hearing.at < asked_at:  # else it has said: not now
                message = f"the cluster does not answer: nothing for {2 * seconds:g} s"
                raise RuntimeUnavailable(message) from None

    async def _write(self, method: str, path: str, *, what: str, **more: Any) -> dict[str, Any]:
        session = await self._sessions.current()
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
            session = await self._sessions.current()
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
                    status: Mapping[str, Any] = {} if response.status < 300 else status_of(content)
                    if response.status < 500 or status.get("kind") == "Status":
                        self._hearing.note()  # else it may be of a load balancer, before a server that hangs
                    if response.status < 300:
                        return content if raw else json.loads(content)
                    if response.status == 401 and not renewed:
                        renewed = True  # a short-lived token: ask for a new one, once
                        await self._sessions.renew(session, client)
                        continue
                    if not may_pass(response.status, method, status):
                        raise error_of(response.status, status)
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

        session = await self._sessions.current()
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
                status = status_of(await response.read())
                if response.status == 401:
                    await self._sessions.renew(session, client)
                if response.status == 401 or response.status in TRANSIENT:
                    message = status.get("message") or f"HTTP {response.status}"
                    raise RuntimeUnavailable(f"the cluster does not answer ({what}): {message}")
                raise error_of(response.status, status)
            yield response


async def _lines(blocks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield whole lines of any length; a line that was cut off is dropped."""
    rest = b""
    async for block in blocks:
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line


async def _heard(
    blocks: AsyncIterator[bytes],
    ask: Callable[[], Awaitable[None]],
    hearing: Hearing,
    *,
    quiet_seconds: float,
) -> AsyncIterator[bytes]:
    """Yield what arrives; while nothing is heard for so long, ask whether anybody is there, which may raise."""
    hearing.note()
    while True:
        arriving = asyncio.ensure_future(anext(blocks, None))
        try:
            while not arriving.done():
                left = hearing.at + quiet_seconds - time.monotonic()
                if left > 0:
                    await asyncio.wait([arriving], timeout=left)
                    continue
                asking = asyncio.ensure_future(ask())
                try:
                    await asyncio.wait([arriving, asking], return_when=asyncio.FIRST_COMPLETED)
                    if not arriving.done():
                        asking.result()
                finally:
                    await _end(asking)
            block = arriving.result()
        finally:
            await _end(arriving)
        if block is None:
            return
        hearing.note()
        yield block


async def _end(task: asyncio.Future[Any]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


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

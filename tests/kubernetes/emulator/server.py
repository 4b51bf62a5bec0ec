"""The HTTP face: paths, authentication, bodies, watches, logs. What verbs do is in `registry`."""

from __future__ import annotations

import asyncio
import base64
import json
import socket
import struct
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import yaml
from aiohttp import web

from tests.kubernetes.emulator import errors, kinds
from tests.kubernetes.emulator.clock import parsed
from tests.kubernetes.emulator.discovery import Discovery
from tests.kubernetes.emulator.errors import ApiError
from tests.kubernetes.emulator.faults import Faults, Rule
from tests.kubernetes.emulator.kinds import Kind
from tests.kubernetes.emulator.podlogs import LogOptions, PodLogs
from tests.kubernetes.emulator.rbac import Access, Ask, User, refusal
from tests.kubernetes.emulator.registry import DeleteOptions, Registry, WriteOptions
from tests.kubernetes.emulator.selectors import Predicate, both, field_selector, label_selector
from tests.kubernetes.emulator.store import Entry, Object
from tests.kubernetes.emulator.watches import Watch, Watches

MAX_BODY = 3 * 1024 * 1024
JSON_TYPES = ("application/json", "application/yaml")
PATCH_TYPES: tuple[str, ...] = (
    "application/merge-patch+json", "application/apply-patch+yaml",
)  # fmt: skip
KEPT_LISTS = 100

Execute = Callable[[web.Request, str, str], Awaitable[web.StreamResponse]]
"""Runs the command of a request in a pod, by namespace and name."""
ControlCall = Callable[[str, dict[str, Any]], Any]


class Evictor(Protocol):
    def evict(self, pod: Entry, options: DeleteOptions) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a path and method are about."""

    verb: str
    kind: Kind
    version: str
    namespace: str
    name: str
    subresource: str

    @property
    def api_version(self) -> str:
        return self.kind.api_version(self.version)

    @property
    def resource(self) -> str:
        return f"{self.kind.plural}/{self.subresource}" if self.subresource else self.kind.plural


class Server:
    def __init__(
        self,
        *,
        registry: Registry,
        access: Access,
        faults: Faults,
        discovery: Discovery,
        logs: PodLogs,
        evictor: Evictor,
        execute: Execute,
        control: ControlCall,
        bookmark_seconds: float,
        port: int,
    ) -> None:
        self._registry = registry
        self._store = registry.store
        self._access = access
        self._faults = faults
        self._discovery = discovery
        self._logs = logs
        self._evictor = evictor
        self._execute = execute
        self._control = control
        self._bookmark_seconds = bookmark_seconds
        self.watches = Watches(self._store)
        self._lists: dict[str, tuple[int, list[Entry]]] = {}
        self._runner: web.AppRunner | None = None
        self.port = port

    # Listening

    async def start(self) -> None:
        app = web.Application(client_max_size=MAX_BODY * 2)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        if not self.port:
            self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Close the listener and every connection at once."""
        if self._runner is None:
            return
        self.watches.cut_all()
        for site in list(self._runner.sites):
            await site.stop()
        if self._runner.server is not None:
            for connection in self._runner.server.connections:
                if connection.transport is not None:
                    connection.transport.abort()
        await self._runner.cleanup()
        self._runner = None

    # Requests

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        if request.path.startswith("/_faults/"):
            return await self._handle_control(request)
        try:
            return await self._answer(request)
        except ApiError as error:
            return _status(error)
        except (ConnectionError, web.HTTPException) as error:
            if not isinstance(error, web.HTTPRequestEntityTooLarge):
                raise
            return web.json_response(_too_large(), status=413)
        except Exception as error:  # noqa: BLE001 - a mistake of the emulator: its owner hears of it
            asyncio.get_running_loop().call_exception_handler(
                {"message": f"{request.method} {request.path_qs}", "exception": error}
            )
            return _status(errors.internal(repr(error)))

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        user = self._access.user_of(request.headers.get("Authorization", ""))
        document = self._discovery.answer(request.path)
        if document is not None:
            if (rule := self._faults.take("get", request.path)) is not None:
                await _fault(request, rule)
            if user is None:
                raise errors.unauthorized()
            if request.method != "GET":
                raise errors.method_not_allowed()
            return web.json_response(document)
        if user is None:
            raise errors.unauthorized()
        target = self._target(request)
        dry_run = "dryRun" in request.query
        rule = self._faults.take(target.verb, request.path, dry_run=dry_run)
        if rule is not None and rule.action != "reset-after":
            await _fault(request, rule)
        self._authorize(user, target, request)
        response = await self._dispatch(request, target, user)
        if rule is not None and rule.action == "reset-after":
            await _fault(request, rule)
        return response

    def _target(self, request: web.Request) -> Target:
        parts = [part for part in request.path.split("/") if part]
        if parts[:1] == ["api"] and len(parts) >= 3:
            group, version, rest = "", parts[1], parts[2:]
        elif parts[:1] == ["apis"] and len(parts) >= 4:
            group, version, rest = parts[1], parts[2], parts[3:]
        else:
            raise errors.no_such_path()
        namespace = ""
        if rest[0] == "namespaces" and len(rest) >= 3 and rest[2] not in ("status", "finalize"):
            namespace, rest = rest[1], rest[2:]
        kind = self._discovery.find(group, version, rest[0])
        if kind is None or len(rest) > 3 or (namespace and not kind.namespaced):
            raise errors.no_such_path()
        name = rest[1] if len(rest) > 1 else ""
        subresource = rest[2] if len(rest) > 2 else ""
        if subresource and subresource not in kind.subresources:
            raise errors.no_such_path()
        verb = _verb(request, kind, namespace=namespace, name=name, subresource=subresource)
        if kind.namespaced and name and not namespace:
            raise errors.no_such_path()
        return Target(
            verb=verb, kind=kind, version=version, namespace=namespace, name=name,
            subresource=subresource,
        )  # fmt: skip

    def _authorize(self, user: User, target: Target, request: web.Request) -> None:
        asks = [target.verb, "create"] if target.subresource == "exec" else [target.verb]
        if target.verb == "patch" and "apply-patch" in request.content_type:
            found = self._store.find(target.kind, target.namespace, target.name)
            if found is None:
                asks.append("create")  # an apply that creates needs both rights
        for verb in asks:
            ask = Ask(
                verb=verb, group=target.kind.group, resource=target.resource, name=target.name,
                namespace=target.namespace if target.kind is not kinds.NAMESPACES else target.name,
            )  # fmt: skip
            if self._access.allowed(user, ask) is None:
                raise refusal(user, target.kind, ask)

    async def _dispatch(
        self, request: web.Request, target: Target, user: User
    ) -> web.StreamResponse:
        _check_accept(request, target)
        if target.verb == "watch":
            return await self._watch(request, target)
        if target.subresource == "log":
            return await self._logs.respond(
                request, self._registry.get(target.kind, target.namespace, target.name),
                _log_options(request.query),
            )  # fmt: skip
        if target.subresource == "exec":
            self._registry.get(target.kind, target.namespace, target.name)
            return await self._execute(request, target.namespace, target.name)
        if target.verb == "list":
            return self._list(request, target)
        if target.verb == "get":
            _check_version(self._store.version, request.query.get("resourceVersion", ""))
            entry = self._registry.get(target.kind, target.namespace, target.name)
            return _document(entry, target)
        if target.verb == "create":
            return await self._create(request, target, user)
        if target.verb == "update":
            return await self._replace(request, target)
        if target.verb == "patch":
            return await self._patch(request, target)
        return await self._delete(request, target)

    # Reading

    def _selection(self, request: web.Request, target: Target) -> Predicate | None:
        return both(
            label_selector(request.query.get("labelSelector", "")),
            field_selector(request.query.get("fieldSelector", ""), target.kind),
        )

    def _list(self, request: web.Request, target: Target) -> web.Response:
        query = request.query
        limit, token = _number(query, "limit"), query.get("continue", "")
        if token:
            version, entries = self._continued(token, query)
        else:
            wanted = query.get("resourceVersion", "")
            _check_match(query)
            _check_version(self._store.version, wanted)
            if query.get("resourceVersionMatch") == "Exact" and int(wanted) < self._store.compacted:
                raise errors.expired("The resourceVersion for the provided list is too old.")
            entries = self._registry.select(
                target.kind, target.namespace, self._selection(request, target)
            )
            version = self._store.version
        meta: dict[str, Any] = {"resourceVersion": str(version)}
        if limit and len(entries) > limit:
            meta["continue"] = self._page(version, entries[limit:])
            if not query.get("labelSelector") and not query.get("fieldSelector"):
                meta["remainingItemCount"] = len(entries) - limit
            entries = entries[:limit]
        head = {
            "kind": f"{target.kind.kind}List",
            "apiVersion": target.api_version,
            "metadata": meta,
        }
        body = b'%b,"items":[%b]}' % (
            json.dumps(head, separators=(",", ":")).encode()[:-1],
            b",".join(entry.item(target.api_version) for entry in entries),
        )
        return web.Response(body=body, content_type="application/json")

    def _page(self, version: int, rest: list[Entry]) -> str:
        key = uuid.uuid4().hex
        self._lists[key] = (version, rest)
        while len(self._lists) > KEPT_LISTS:
            del self._lists[next(iter(self._lists))]
        token = {"v": "meta.k8s.io/v1", "rv": version, "start": key}
        return base64.urlsafe_b64encode(json.dumps(token).encode()).decode()

    def _continued(self, token: str, query: Mapping[str, str]) -> tuple[int, list[Entry]]:
        if query.get("resourceVersion") not in (None, "", "0"):
            raise errors.bad_request(
                "specifying resource version is not allowed when using continue"
            )
        try:
            found = json.loads(base64.urlsafe_b64decode(token))
            key, version = found["start"], found["rv"]
        except (ValueError, KeyError, TypeError) as error:
            raise errors.bad_request("continue key is not valid: decoding error") from error
        if version < self._store.compacted or key not in self._lists:
            raise errors.expired(
                "The provided continue parameter is too old to display a consistent list result. "
                "You can start a new list without the continue parameter."
            )
        return self._lists[key]

    async def _watch(self, request: web.Request, target: Target) -> web.StreamResponse:
        query = request.query
        predicate = self._selection(request, target)
        wanted = query.get("resourceVersion", "")
        _check_match(query, watching=True)
        # The real one too draws a time between 30 and 60 minutes where none is given.
        seconds = _number(query, "timeoutSeconds") or 2400
        bookmarks = _flag(query, "allowWatchBookmarks")
        initial = _flag(query, "sendInitialEvents")
        watch = Watch(
            kind=target.kind, api_version=target.api_version, namespace=target.namespace,
            predicate=predicate, faults=self._faults,
        )  # fmt: skip
        gone = False
        if initial or wanted in ("", "0"):
            for entry in self._registry.select(target.kind, target.namespace, predicate):
                watch.add(entry)
            if initial and bookmarks:
                watch.bookmark(self._store.version, initial_end=True)
        else:
            version = _version(wanted)
            if version < self._store.compacted:
                gone = True
                text = f"too old resource version: {version} ({self._store.compacted})"
                if self._faults.http_gone:
                    raise errors.expired(text)
                watch.fail(errors.expired(text).status)
            else:
                for change in self._store.since(target.kind, version):
                    watch.offer(change)
        stop = self.watches.opened(watch)
        response = web.StreamResponse(
            headers={"Content-Type": "application/json", "Cache-Control": "no-cache, private"}
        )
        response.enable_chunked_encoding()
        try:
            await response.prepare(request)
            await self._feed(request, response, watch, 0 if gone else seconds, bookmarks=bookmarks)
        except (ConnectionResetError, ConnectionError):
            pass
        finally:
            stop()
        return response

    async def _feed(
        self,
        request: web.Request,
        response: web.StreamResponse,
        watch: Watch,
        seconds: float,
        *,
        bookmarks: bool,
    ) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + seconds
        next_bookmark = loop.time() + self._bookmark_seconds
        while True:
            now = loop.time()
            data = await watch.lines(max(0.0, min(ends, next_bookmark) - now))
            if watch.cut:
                _reset(request)
                return
            if data:
                await response.write(data)
            now = loop.time()
            if now >= ends:
                break
            if now >= next_bookmark:
                next_bookmark = now + self._bookmark_seconds
                if bookmarks:
                    watch.bookmark(self._store.version)
        watch.flush_held()
        if bookmarks and seconds:
            watch.bookmark(self._store.version)
        await response.write(await watch.lines(0))
        await response.write_eof()

    # Writing

    async def _body(self, request: web.Request, accepted: tuple[str, ...]) -> Any:
        content_type = request.content_type if "Content-Type" in request.headers else accepted[0]
        if content_type not in accepted:
            raise errors.unsupported_media_type(accepted)
        data = await request.read()
        if len(data) > MAX_BODY:
            raise web.HTTPRequestEntityTooLarge(MAX_BODY, len(data))
        return _parse(data, content_type)

    def _options(self, request: web.Request) -> WriteOptions:
        query = request.query
        validation = query.get("fieldValidation", "")
        if validation not in ("", "Ignore", "Warn", "Strict"):
            cause = errors.unsupported("fieldValidation", validation, ("Ignore", "Strict", "Warn"))
            raise ApiError(422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: {cause}')
        return WriteOptions(
            dry_run=_dry_run(query.getall("dryRun", [])),
            strict=validation == "Strict",
            applied="apply-patch" in request.content_type,
        )

    async def _create(self, request: web.Request, target: Target, user: User) -> web.Response:
        document = _enveloped(await self._body(request, JSON_TYPES), target)
        if target.subresource == "eviction":
            return self._evict(document, target)
        if target.kind is kinds.ACCESS_REVIEWS:
            return self._review_access(document, user)
        options = self._options(request)
        entry = self._registry.create(target.kind, target.namespace, document, options)
        return _document(entry, target, code=201, warnings=options.warnings)

    async def _replace(self, request: web.Request, target: Target) -> web.Response:
        document = _enveloped(await self._body(request, JSON_TYPES), target)
        options = self._options(request)
        entry = self._registry.replace(
            target.kind, target.namespace, target.name, document,
            subresource=target.subresource, options=options,
        )  # fmt: skip
        return _document(entry, target, warnings=options.warnings)

    async def _patch(self, request: web.Request, target: Target) -> web.Response:
        if "Content-Type" not in request.headers or request.content_type not in PATCH_TYPES:
            raise errors.unsupported_media_type(PATCH_TYPES)
        patch = await self._body(request, PATCH_TYPES)
        options = self._options(request)
        kind, namespace, name = target.kind, target.namespace, target.name
        applied = "apply-patch" in request.content_type
        if applied:
            if not request.query.get("fieldManager"):
                raise errors.bad_request(
                    'PatchOptions.meta.k8s.io "" is invalid: fieldManager: Required value: is '
                    "required for apply patch"
                )
            if not _flag(request.query, "force"):
                raise errors.bad_request("nothing here has an owner: only force=true is emulated")
            patch = _enveloped(patch, target, strict=True)
        if not isinstance(patch, dict):
            raise errors.bad_request("cannot unmarshal the patch into an object")
        if applied and self._store.find(kind, namespace, name) is None:
            entry = self._registry.create(kind, namespace, patch, options)
            return _document(entry, target, code=201, warnings=options.warnings)
        entry = self._registry.patch(
            kind, namespace, name, patch, subresource=target.subresource, options=options
        )
        return _document(entry, target, warnings=options.warnings)

    async def _delete(self, request: web.Request, target: Target) -> web.Response:
        body = await self._body(request, JSON_TYPES) if request.can_read_body else None
        options = _delete_options(body or {}, request.query)
        if target.verb == "deletecollection":
            entries = self._registry.select(
                target.kind, target.namespace, self._selection(request, target)
            )
            for entry in entries:
                self._registry.delete(target.kind, entry.namespace, entry.name, options)
            head = {
                "kind": f"{target.kind.kind}List", "apiVersion": target.api_version,
                "metadata": {"resourceVersion": str(self._store.version)},
                "items": [json.loads(entry.item(target.api_version)) for entry in entries],
            }  # fmt: skip
            return web.json_response(head)
        entry, gone = self._registry.delete(target.kind, target.namespace, target.name, options)
        if gone and not target.kind.returns_deleted:
            return web.json_response(_success(target, entry))
        return _document(entry, target)

    def _evict(self, document: Object, target: Target) -> web.Response:
        name = (document.get("metadata") or {}).get("name", target.name)
        if name != target.name:
            raise errors.bad_request("name in URL does not match name in Eviction object")
        pod = self._registry.get(target.kind, target.namespace, target.name)
        self._evictor.evict(pod, _delete_options(document.get("deleteOptions") or {}, {}))
        return web.json_response(
            {
                "kind": "Status",
                "apiVersion": "v1",
                "metadata": {},
                "status": "Success",
                "code": 201,
            },
            status=201,
        )

    def _review_access(self, document: Object, user: User) -> web.Response:
        spec = document.get("spec") or {}
        about = spec.get("resourceAttributes")
        if about is None and spec.get("nonResourceAttributes") is None:
            cause = errors.wrong(
                "spec.resourceAttributes", "",
                "exactly one of nonResourceAttributes or resourceAttributes must be specified",
            )  # fmt: skip
            raise errors.invalid(kinds.ACCESS_REVIEWS, "", [cause])
        about = about or {}
        resource = about.get("resource", "")
        if about.get("subresource"):
            resource += f"/{about['subresource']}"
        ask = Ask(
            verb=about.get("verb", ""), group=about.get("group", ""), resource=resource,
            name=about.get("name", ""), namespace=about.get("namespace", ""),
        )  # fmt: skip
        why = self._access.allowed(user, ask)
        status: dict[str, Any] = {"allowed": why is not None}
        if why:
            status["reason"] = why
        return _review(kinds.ACCESS_REVIEWS, spec, status)

    # The tests' own door

    async def _handle_control(self, request: web.Request) -> web.Response:
        name = request.path.removeprefix("/_faults/")
        values = await request.json() if request.can_read_body else {}
        try:
            result = self._control(name, values)
            if isinstance(result, Awaitable):
                result = await result
        except ApiError as error:
            return _status(error)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            return web.json_response({"error": f"{type(error).__name__}: {error}"}, status=400)
        return web.json_response({"result": result})


def _verb(request: web.Request, kind: Kind, *, namespace: str, name: str, subresource: str) -> str:
    method = request.method
    if subresource:
        allowed = {
            "log": {"GET": "get"}, "eviction": {"POST": "create"},
            # a web socket is asked for with GET, but counts as a creation, too
            "exec": {"GET": "get", "POST": "create"},
            "finalize": {"PUT": "update"},
        }.get(subresource, {"GET": "get", "PUT": "update", "PATCH": "patch"})  # fmt: skip
        verb = allowed.get(method, "")
        known = bool(verb)
    elif name:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}.get(method, "")
        known = verb in kind.verbs
    else:
        verb = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}.get(method, "")
        if verb == "list" and _flag(request.query, "watch"):
            verb = "watch"
        known = verb in kind.verbs
        if kind.namespaced and not namespace and verb in ("create", "deletecollection"):
            known = False
    if not known:
        raise errors.method_not_allowed()
    return verb


def _parse(data: bytes, content_type: str) -> Any:
    try:
        if content_type.endswith("yaml"):
            return yaml.safe_load(data)
        return json.loads(data) if data else None
    except (ValueError, yaml.YAMLError) as error:
        raise errors.bad_request(
            f"the object provided is unrecognized (must be of type Object): {error}"
        ) from error


def _enveloped(document: Any, target: Target, *, strict: bool = False) -> Object:
    """Return the body, whose kind and version must be those of the path."""
    if not isinstance(document, dict):
        raise errors.bad_request("the request body is not an object")
    kind, version = document.get("kind", ""), document.get("apiVersion", "")
    wanted_kind, wanted_version = target.kind.kind, target.api_version
    if target.subresource == "eviction":
        wanted_kind, wanted_version = "Eviction", "policy/v1"
    # A typed path fills in what is missing; a custom one and an apply do not.
    if (strict or target.kind.custom) and not (kind and version):
        missing = "Kind" if not kind else "apiVersion"
        raise errors.bad_request(f"Object '{missing}' is missing in '{json.dumps(document)[:120]}'")
    if (kind and kind != wanted_kind) or (version and version != wanted_version):
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({wanted_version})"
            if version and version != wanted_version
            else f'{kind} in version "{version}" cannot be handled as a {wanted_kind}'
        )
    return document


def _delete_options(body: Mapping[str, Any], query: Mapping[str, str]) -> DeleteOptions:
    grace = body.get("gracePeriodSeconds")
    if grace is None and query.get("gracePeriodSeconds"):
        grace = _number(query, "gracePeriodSeconds")
    propagation = body.get("propagationPolicy") or query.get("propagationPolicy") or ""
    if propagation not in ("", "Orphan", "Background", "Foreground"):
        cause = errors.unsupported(
            "propagationPolicy", propagation, ("Foreground", "Background", "Orphan")
        )
        raise ApiError(422, "Invalid", f'DeleteOptions.meta.k8s.io "" is invalid: {cause}')
    conditions = body.get("preconditions") or {}
    dry = body.get("dryRun") or ([query["dryRun"]] if query.get("dryRun") else [])
    return DeleteOptions(
        grace_seconds=None if grace is None else max(int(grace), 0), propagation=propagation,
        uid=conditions.get("uid") or "", version=conditions.get("resourceVersion") or "",
        dry_run=_dry_run(dry),
    )  # fmt: skip


def _dry_run(values: list[str]) -> bool:
    for value in values:
        if value != "All":
            cause = errors.unsupported("dryRun", value, ("All",))
            raise ApiError(422, "Invalid", f'CreateOptions.meta.k8s.io "" is invalid: {cause}')
    return bool(values)


def _flag(query: Mapping[str, str], key: str) -> bool:
    """Return a boolean as Go reads it."""
    text = query.get(key, "")
    if text in ("1", "t", "T", "TRUE", "true", "True"):
        return True
    if text in ("", "0", "f", "F", "FALSE", "false", "False"):
        return False
    raise errors.bad_request(f'strconv.ParseBool: parsing "{text}": invalid syntax')


def _number(query: Mapping[str, str], key: str) -> int:
    text = query.get(key, "")
    if not text:
        return 0
    try:
        return int(text)
    except ValueError:
        raise errors.bad_request(
            f'strconv.ParseInt: parsing "{text}": invalid syntax in {key}'
        ) from None


def _version(text: str) -> int:
    if not text.isdecimal():
        raise errors.bad_request(
            f'Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
        )
    return int(text)


def _check_version(current: int, wanted: str) -> None:
    if wanted and _version(wanted) > current:
        raise errors.too_large_version(int(wanted), current)


def _check_match(query: Mapping[str, str], *, watching: bool = False) -> None:
    match, version = query.get("resourceVersionMatch", ""), query.get("resourceVersion", "")
    initial = _flag(query, "sendInitialEvents")
    why = ""
    if watching:
        if initial and match != "NotOlderThan":
            why = (
                "resourceVersionMatch: Forbidden: sendInitialEvents requires setting "
                "resourceVersionMatch to NotOlderThan"
            )
        elif match and not initial:
            why = (
                "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless "
                "sendInitialEvents is provided"
            )
    elif initial:
        why = "sendInitialEvents: Forbidden: sendInitialEvents is forbidden for list"
    elif match and not version:
        why = (
            "resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless "
            "resourceVersion is provided"
        )
    elif match == "Exact" and version == "0":
        why = 'resourceVersionMatch: Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
    elif match not in ("", "Exact", "NotOlderThan"):
        why = str(errors.unsupported("resourceVersionMatch", match, ("Exact", "NotOlderThan", "")))
    if why:
        raise ApiError(422, "Invalid", f'ListOptions.meta.k8s.io "" is invalid: {why}')


def _check_accept(request: web.Request, target: Target) -> None:
    if target.subresource == "log":
        return
    accept = request.headers.get("Accept", "*/*")
    good = ("*/*", "application/json", "application/*")
    if not any(one.strip().partition(";")[0] in good for one in accept.split(",")):
        raise errors.not_acceptable()


def _log_options(query: Mapping[str, str]) -> LogOptions:
    since = query.get("sinceTime", "")
    if since and query.get("sinceSeconds"):
        raise ApiError(
            422, "Invalid",
            'PodLogOptions "" is invalid: sinceSeconds: Forbidden: at most one of `sinceTime` or '
            "`sinceSeconds` may be specified",
        )  # fmt: skip
    try:
        moment = parsed(since) if since else None
    except ValueError as error:
        raise errors.bad_request(f'parsing time "{since}" as RFC3339: {error}') from error
    for key in ("tailLines", "limitBytes", "sinceSeconds"):
        least = 0 if key == "tailLines" else 1
        if query.get(key) and _number(query, key) < least:
            raise ApiError(
                422, "Invalid",
                f'PodLogOptions "" is invalid: {key}: Invalid value: {query[key]}: must be greater '
                f"than {'or equal to ' if not least else ''}0",
            )  # fmt: skip
    return LogOptions(
        container=query.get("container", ""),
        follow=_flag(query, "follow"),
        previous=_flag(query, "previous"),
        timestamps=_flag(query, "timestamps"),
        since_seconds=_number(query, "sinceSeconds") or None, since=moment,
        tail=_number(query, "tailLines") if query.get("tailLines") else None,
        limit=_number(query, "limitBytes") or None,
    )  # fmt: skip


def _document(
    entry: Entry, target: Target, *, code: int = 200, warnings: list[str] | None = None
) -> web.Response:
    response = web.Response(
        body=entry.document(target.api_version), status=code, content_type="application/json"
    )
    for text in warnings or ():
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        response.headers.add("Warning", f'299 - "{escaped}"')
    return response


def _review(kind: Kind, spec: Any, status: Any) -> web.Response:
    return web.json_response(
        {
            "kind": kind.kind, "apiVersion": kind.api_version(),
            "metadata": {"creationTimestamp": None}, "spec": spec, "status": status,
        },
        status=201,
    )  # fmt: skip


def _success(target: Target, entry: Entry) -> dict[str, Any]:
    details = {"name": entry.name, "kind": target.kind.plural, "uid": entry.uid}
    if target.kind.group:
        details["group"] = target.kind.group
    return {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": details,
    }  # fmt: skip


def _too_large() -> dict[str, Any]:
    return ApiError(
        413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}"
    ).status


def _status(error: ApiError) -> web.Response:
    return web.json_response(error.status, status=error.code, headers=error.headers)


async def _fault(request: web.Request, rule: Rule) -> None:
    """Do what a fault says; a reset raises, as nothing can be answered any more."""
    if rule.action == "hang":
        await asyncio.sleep(rule.seconds)
        return
    if rule.action == "hold":
        rule.held += 1
        await rule.door.wait()
        return
    if rule.action == "status":
        raise _fault_error(rule)
    await request.read()  # the client has sent everything; only its answer is lost
    _reset(request)
    raise ConnectionResetError("a fault cut this connection")


def _fault_error(rule: Rule) -> ApiError:
    headers = {} if rule.retry_after is None else {"Retry-After": str(rule.retry_after)}
    if rule.code == 429:
        return ApiError(
            429, "TooManyRequests",
            "the server has received too many requests and has asked us to try again later",
            details={"retryAfterSeconds": rule.retry_after}, headers=headers,
        )  # fmt: skip
    reason, message = {
        500: ("InternalError", "Internal error occurred: injected"),
        503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
        504: ("Timeout", "Timeout: request did not complete within the allotted timeout"),
    }.get(rule.code, ("", f"injected {rule.code}"))
    return ApiError(rule.code, reason, rule.message or message, headers=headers)


def _reset(request: web.Request) -> None:
    """Close the connection with a TCP reset."""
    transport = request.transport
    if transport is None:
        return
    raw = transport.get_extra_info("socket")
    if raw is not None:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    transport.abort()

"""Container logs: one file per attempt in the CRI format, and the log subresource that reads them."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from aiohttp import web

from tests.kubernetes.emulator import errors
from tests.kubernetes.emulator.clock import later, now, parsed
from tests.kubernetes.emulator.store import Entry

LONGEST_LINE = 16 * 1024
MAX_BYTES = 10 << 20
"""From which size on the kubelet begins another file (`containerLogMaxSize`)."""
MAX_FILES = 5
MONITOR_SECONDS = 10.0
"""How often it looks at the sizes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogOptions:
    container: str = ""
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    since_seconds: int | None = None
    since: datetime | None = None
    tail: int | None = None
    limit: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """A followed log whose connection dies."""

    after_bytes: int
    how: Literal["cut", "silence"]
    """Reset, or open and dumb for ever."""


class ContainerLog:
    """The output of one attempt: complete lines, or pieces of 16 KiB of longer ones.

    The file that is written is `path`; a full one is renamed, and only the newest few are kept.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.closed = False
        self.rotations = 0
        self._rotated: list[Path] = []
        self._looked_at = time.monotonic()
        self._rest = b""
        self._news = asyncio.Event()
        self._file = path.open("wb")

    def rotate(self) -> None:
        """Rename the file and begin another one."""
        if self.closed:
            return
        self._file.close()
        self.rotations += 1
        renamed = self.path.with_name(f"{self.path.name}.{self.rotations:06d}")
        self.path.rename(renamed)
        self._rotated.append(renamed)
        while len(self._rotated) > MAX_FILES - 1:
            self._rotated.pop(0).unlink()
        self._file = self.path.open("wb")
        self._wake()

    def remove(self) -> None:
        """Close it and take its files away."""
        self.close()
        for path in (self.path, *self._rotated):
            path.unlink(missing_ok=True)

    def _monitor(self) -> None:
        if time.monotonic() - self._looked_at < MONITOR_SECONDS:
            return
        self._looked_at = time.monotonic()
        if self._file.tell() >= MAX_BYTES:
            self.rotate()

    def write(self, data: bytes) -> None:
        self._monitor()
        *lines, self._rest = (self._rest + data).split(b"\n")
        prefix = now().strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
        out = [b"%b stdout F %b\n" % (prefix, line) for line in lines]
        while len(self._rest) > LONGEST_LINE:
            out.append(b"%b stdout P %b\n" % (prefix, self._rest[:LONGEST_LINE]))
            self._rest = self._rest[LONGEST_LINE:]
        if out:
            self._file.write(b"".join(out))
            self._file.flush()
            self._wake()

    def close(self) -> None:
        if self.closed:
            return
        if self._rest:  # what a program printed last, without a newline
            rest, self._rest = self._rest, b""
            prefix = now().strftime("%Y-%m-%dT%H:%M:%S.%f000Z").encode()
            self._file.write(b"%b stdout P %b\n" % (prefix, rest))
        self.closed = True
        self._file.close()
        self._wake()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    @property
    def news(self) -> asyncio.Event:
        """Return what is set with the next change; taken before a look, it misses nothing."""
        return self._news


def _pieces(
    data: bytes, *, timestamps: bool, since: datetime | None, at_start: bool = True
) -> Iterator[bytes]:
    """Yield the output lines of a CRI log; only where a line starts is there a time stamp."""
    for line in data.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            return
        stamp, _, flag, text = line[:-1].split(b" ", 3)
        if since is not None and parsed(stamp.decode()) < since:
            continue
        end = b"\n" if flag == b"F" else b""
        yield (stamp + b" " if timestamps and at_start else b"") + text + end
        at_start = bool(end)


class PodLogs:
    """The logs of all containers of a cluster: the current and the previous attempt of each."""

    def __init__(self, folder: Path, reachable: Callable[[str], bool]) -> None:
        self._folder = folder
        self._reachable = reachable
        self._logs: dict[tuple[str, str], list[ContainerLog]] = {}
        self.breaks: list[Break] = []
        """How the next logs that are followed break off."""
        self._followers: list[web.Request] = []

    def open(self, pod: Entry, container: str) -> ContainerLog:
        """Begin the log of a new attempt."""
        attempts = self._logs.setdefault((pod.uid, container), [])
        name = f"{pod.namespace}_{pod.name}_{pod.uid}_{container}_{len(attempts)}.log"
        log = ContainerLog(self._folder / name)
        attempts.append(log)
        return log

    def current(self, pod: Entry, container: str) -> ContainerLog | None:
        attempts = self._logs.get((pod.uid, container), ())
        return attempts[-1] if attempts else None

    def forget(self, pod: Entry) -> None:
        """End and remove the logs of a pod that is gone."""
        for key in [key for key in self._logs if key[0] == pod.uid]:
            for log in self._logs.pop(key):
                log.remove()

    def close(self) -> None:
        for attempts in self._logs.values():
            for log in attempts:
                log.close()

    async def respond(
        self, request: web.Request, pod: Entry, options: LogOptions
    ) -> web.StreamResponse:
        container = _container(pod, options.container)
        if not pod.obj["spec"].get("nodeName"):
            return web.Response(status=204)
        if not self._reachable(pod.obj["spec"]["nodeName"]):
            host = pod.obj["status"].get("hostIP", "10.0.0.1")
            raise errors.ApiError(
                500, "",
                f'Get "https://{host}:10250/containerLogs/{pod.namespace}/{pod.name}/{container}": '
                f"dial tcp {host}:10250: i/o timeout",
            )  # fmt: skip
        log = self._find(pod, container, previous=options.previous)
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        broken = self.breaks.pop(0) if self.breaks and options.follow else None
        try:
            if broken is not None:
                whole = b"".join(
                    _pieces(
                        log.path.read_bytes(), timestamps=options.timestamps, since=options.since
                    )
                )
                await _break(request, response, whole[: broken.after_bytes], broken)
                return response
            if options.follow:
                self._followers.append(request)
            await _send(response, log, options)
            await response.write_eof()
        except ConnectionError:
            pass
        finally:
            if request in self._followers:
                self._followers.remove(request)
        return response

    def cut(self) -> None:
        """Cut the connections over which logs are followed."""
        for request in self._followers:
            if request.transport:
                request.transport.abort()

    def _find(self, pod: Entry, container: str, *, previous: bool) -> ContainerLog:
        attempts = self._logs.get((pod.uid, container), [])
        if previous:
            if len(attempts) < 2:
                raise errors.bad_request(
                    f'previous terminated container "{container}" in pod "{pod.name}" not found'
                )
            return attempts[-2]
        if not attempts:
            raise errors.bad_request(
                f'container "{container}" in pod "{pod.name}" is waiting to start: '
                + _waiting_reason(pod, container)
            )
        return attempts[-1]


async def _break(
    request: web.Request, response: web.StreamResponse, text: bytes, broken: Break
) -> None:
    await response.write(text)
    while broken.how == "silence" and request.transport and not request.transport.is_closing():  # noqa: ASYNC110 - nothing tells of a client that leaves
        await asyncio.sleep(0.02)
    if request.transport:
        request.transport.abort()


async def _send(response: web.StreamResponse, log: ContainerLog, options: LogOptions) -> None:
    since = options.since
    if options.since_seconds:
        since = later(-options.since_seconds)
    left = options.limit
    first = at_start = True
    with contextlib.ExitStack() as files:
        file, rotations = files.enter_context(log.path.open("rb")), log.rotations
        while True:
            ended, news = log.closed, log.news
            data = file.read()
            if log.rotations != rotations and not data:
                # it goes on with the newest file, however many there were meanwhile
                file, rotations = files.enter_context(log.path.open("rb")), log.rotations
                continue
            pieces = list(
                _pieces(data, timestamps=options.timestamps, since=since, at_start=at_start)
            )
            if pieces:
                at_start = pieces[-1].endswith(b"\n")
            if first and options.tail is not None:
                pieces = pieces[-options.tail :] if options.tail else []
            first = False
            text = b"".join(pieces)
            if left is not None:
                text = text[:left]
                left -= len(text)
            if text:
                await response.write(text)
            if not options.follow or left == 0:
                return
            if log.rotations == rotations:
                if ended:
                    return
                if not log.closed:
                    await news.wait()


def _container(pod: Entry, wanted: str) -> str:
    spec = pod.obj["spec"]
    names = [one["name"] for one in spec["containers"]]
    init = [one["name"] for one in spec.get("initContainers") or ()]
    if not wanted:
        default = (pod.obj["metadata"].get("annotations") or {}).get(
            "kubectl.kubernetes.io/default-container"
        )
        if default in names:
            return str(default)
        if len(names) == 1:
            return str(names[0])
        more = f" or one of the init containers: [{' '.join(init)}]" if init else ""
        raise errors.bad_request(
            f"a container name must be specified for pod {pod.name}, choose one of: "
            f"[{' '.join(names)}]{more}"
        )
    if wanted not in (*names, *init):
        raise errors.bad_request(f"container {wanted} is not valid for pod {pod.name}")
    return wanted


def _waiting_reason(pod: Entry, container: str) -> str:
    status: dict[str, Any] = pod.obj["status"]
    for one in (
        *(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ()),
    ):  # fmt: skip
        if one["name"] == container and "waiting" in one["state"]:
            reason = one["state"]["waiting"].get("reason", "")
            if reason in ("ErrImagePull", "ImagePullBackOff"):
                return "trying and failing to pull image"
            return str(reason)
    return "ContainerCreating"

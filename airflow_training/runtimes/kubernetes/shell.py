"""A command inside a container: streams over one WebSocket, in the channels of the API server.

Protocol v5 can say that the input has ended; servers before 1.30 speak v4, which cannot.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Forbidden
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.runtimes.port import Streams
from airflow_training.runtimes.terminal import SHELL, raw_terminal, read_stream, write_all

if TYPE_CHECKING:
    from aiohttp import ClientWebSocketResponse

__all__ = ["exit_code_of", "open_shell"]

_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255
_V5, _V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
_GONE = 255
"""Exit code of a command whose container or connection went away, as ssh has it."""
_CANNOT_START = 126


async def open_shell(
    api: Api,
    namespace: str,
    pod: str,
    container: str,
    command: Sequence[str],
    streams: Streams,
) -> int:
    """Run a command in a container and return its exit code; raises InputError where we may not."""
    if not await api.allowed("create", PODS, namespace, "exec"):
        raise _not_allowed(namespace, pod)
    query = [
        *(("command", each) for each in command or SHELL),
        ("container", container),
        ("stdin", "true"),
        ("stdout", "true"),
        # a terminal has one output
        ("stderr", str(not streams.terminal).lower()),
        ("tty", str(streams.terminal).lower()),
    ]
    try:
        async with api.exec(namespace, pod, query, protocols=(_V5, _V4)) as socket:
            return await _talk(socket, streams)
    except Forbidden as error:
        raise _not_allowed(namespace, pod) from error
    except ApiError as error:
        raise InputError.of(
            code="not_supported",
            field="RUN",
            value=pod,
            message=f"no command can be run in pod {pod}: {error}",
        ) from error


def _not_allowed(namespace: str, pod: str) -> InputError:
    return InputError.of(
        code="not_allowed",
        field="RUN",
        value=pod,
        message=f"the cluster does not let you run a command in a pod of namespace {namespace}",
        hint='add to your Role: {apiGroups: [""], resources: [pods/exec], verbs: [create, get]}',
    )


async def _talk(socket: ClientWebSocketResponse, streams: Streams) -> int:
    """Copy between the streams and the socket until the command has ended."""
    outgoing: asyncio.Queue[bytes] = asyncio.Queue()

    async def typed(data: bytes) -> None:
        if data:
            outgoing.put_nowait(bytes([_STDIN]) + data)
        elif socket.protocol == _V5:
            outgoing.put_nowait(bytes([_CLOSE, _STDIN]))
        await outgoing.join()  # the next piece is read when this one is sent

    def resized(rows: int, columns: int) -> None:
        size = json.dumps({"Width": columns, "Height": rows})
        outgoing.put_nowait(bytes([_RESIZE]) + size.encode())

    async def send() -> None:
        while True:
            await socket.send_bytes(await outgoing.get())
            outgoing.task_done()

    sending = asyncio.ensure_future(send())
    try:
        if not streams.terminal:
            read_stream(streams.stdin, typed)
            return await _receive(socket, streams)
        with raw_terminal(streams.stdin, resized=resized):
            read_stream(streams.stdin, typed)
            return await _receive(socket, streams)
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _receive(socket: ClientWebSocketResponse, streams: Streams) -> int:
    async for message in socket:
        if not isinstance(message.data, bytes) or not message.data:
            continue
        channel, data = message.data[0], message.data[1:]
        if channel == _STDOUT:
            write_all(streams.stdout, data)
        elif channel == _STDERR:
            write_all(streams.stderr, data)
        elif channel == _ERROR and data:
            status = json.loads(data)
            code = exit_code_of(status)
            if code is None:  # it never ran
                write_all(streams.stderr, f"{status.get('message', '')}\n".encode())
                return _CANNOT_START
            return code
    return _GONE


def exit_code_of(status: Mapping[str, Any]) -> int | None:
    """Return the exit code that the last word of a command has; None where it has none."""
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or ()
    codes = [each["message"] for each in causes if each.get("reason") == "ExitCode"]
    return int(codes[0]) if codes else None

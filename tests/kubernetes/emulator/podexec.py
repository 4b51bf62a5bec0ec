"""A command in a container of a pod of processes: the streams of `pods/exec`, protocols v4 and v5."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import pty
import struct
import termios
from collections.abc import Sequence
from typing import Any

from aiohttp import WSMsgType, web

STDIN, STDOUT, STDERR, ERROR, RESIZE, CLOSE = 0, 1, 2, 3, 4, 255
PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
CHUNK = 1 << 16


async def respond(
    request: web.Request, arguments: Sequence[str], environment: dict[str, str]
) -> web.StreamResponse:
    """Run it, its streams being channels of the socket, and tell its exit code at the end."""
    socket = web.WebSocketResponse(protocols=PROTOCOLS)
    await socket.prepare(request)
    command = _Command(socket)
    await command.start(arguments, environment, terminal=request.query.get("tty") == "true")
    hearing = asyncio.ensure_future(command.hear())
    code = await command.end()
    await socket.send_bytes(bytes([ERROR]) + json.dumps(_status(code)).encode())
    await socket.close()
    hearing.cancel()
    await asyncio.gather(hearing, return_exceptions=True)
    return socket


def _status(code: int) -> dict[str, Any]:
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }  # fmt: skip


class _Command:
    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket
        self._process: asyncio.subprocess.Process
        self._input = -1
        self._outputs: list[asyncio.Future[None]] = []

    async def start(
        self, arguments: Sequence[str], environment: dict[str, str], *, terminal: bool
    ) -> None:
        if terminal:
            ours, theirs = pty.openpty()
            self._input, reads, streams = ours, {STDOUT: ours}, (theirs, theirs, theirs)
        else:
            (stdin, self._input), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
            reads, streams = {STDOUT: out, STDERR: err}, (stdin, stdout, stderr)
        self._process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, stdin=streams[0], stdout=streams[1], stderr=streams[2],
            start_new_session=True, preexec_fn=_take_terminal if terminal else None,
        )  # fmt: skip
        for each in set(streams):
            os.close(each)
        self._outputs = [
            asyncio.ensure_future(self._bring(channel, read)) for channel, read in reads.items()
        ]

    async def _bring(self, channel: int, descriptor: int) -> None:
        while data := await asyncio.to_thread(_read, descriptor):
            await self._socket.send_bytes(bytes([channel]) + data)

    async def hear(self) -> None:
        async for message in self._socket:
            if message.type is not WSMsgType.BINARY:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel == STDIN:
                await asyncio.to_thread(os.write, self._input, data)
            elif channel == CLOSE:
                os.close(self._input)
            elif channel == RESIZE:
                size = json.loads(data)
                packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
                fcntl.ioctl(self._input, termios.TIOCSWINSZ, packed)
        if self._process.returncode is None:
            self._process.kill()

    async def end(self) -> int:
        code = await self._process.wait()
        await asyncio.wait(self._outputs)
        return code if code >= 0 else 128 - code


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, CHUNK)
    except OSError:  # the other side of a terminal is closed
        return b""

"""Opens a shell inside an instance: its agent starts it, in the instance's folder and environment."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import shlex
import struct
import termios
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.agent.control import connect, send_request
from airflow_training.agent.files import AttemptFolder
from airflow_training.errors import InputError
from airflow_training.runtimes.folders.attempt_state import AgentLiveness
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local.liveness import find_attempt
from airflow_training.runtimes.port import InstanceRef, Streams
from airflow_training.runtimes.terminal import SHELL, raw_terminal, read_stream, write_all

__all__ = ["open_shell"]

_LIVES = frozenset({AgentLiveness.ALIVE, AgentLiveness.WAITING, AgentLiveness.STAYING})
_ANSWER = 1 << 16
_GONE = 255
"""Exit code of a command whose instance went away, as ssh has it."""
_LAST_WORDS_SECONDS = 1.0


async def open_shell(
    run: RunFolder, ref: InstanceRef, command: Sequence[str], streams: Streams
) -> int:
    """Run a command below the agent of an instance; return its exit code. Raises InputError."""
    folder = await asyncio.to_thread(_living, run, ref)
    request = {"op": "exec", "command": shlex.join(command or SHELL)}
    if not streams.terminal:
        return await _call(folder, request, streams.descriptors, close=())
    ours, theirs = pty.openpty()
    try:
        return await _in_terminal(folder, request, streams, ours=ours, theirs=theirs)
    finally:
        os.close(ours)


def _living(run: RunFolder, ref: InstanceRef) -> AttemptFolder:
    found = find_attempt(run, ref)
    name = str(ref.key)
    if found is None:
        raise _refused(f"there is no instance {name}")
    folder, standing = found
    if standing.life is AgentLiveness.ELSEWHERE:
        raise _refused(f"{name} is on another machine: {standing.place}")
    if standing.life not in _LIVES:
        raise _refused(f"nothing of {name} lives any more", hint=f"its files are in {folder.path}")
    return folder


async def _in_terminal(
    folder: AttemptFolder, request: Mapping[str, Any], streams: Streams, *, ours: int, theirs: int
) -> int:
    """Run it in a terminal of its own, and copy between that and the caller's."""
    over = asyncio.Event()

    def resized(rows: int, columns: int) -> None:
        with contextlib.suppress(OSError):
            fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    async def typed(data: bytes) -> None:
        if data and not over.is_set():
            with contextlib.suppress(OSError):
                write_all(ours, data)

    async def printed(data: bytes) -> None:
        if data:
            write_all(streams.stdout, data)
        else:
            over.set()

    env = {"TERM": os.environ.get("TERM", "xterm")}
    with raw_terminal(streams.stdin, resized=resized):
        read_stream(streams.stdin, typed)
        read_stream(os.dup(ours), printed)
        code = await _call(
            folder,
            {**request, "terminal": True, "env": env},
            (theirs, theirs, theirs),
            close=(theirs,),
        )
        with contextlib.suppress(asyncio.TimeoutError):  # something in the background holds it
            await asyncio.wait_for(over.wait(), _LAST_WORDS_SECONDS)
        over.set()
    return code


async def _call(
    folder: AttemptFolder,
    request: Mapping[str, Any],
    descriptors: Sequence[int],
    *,
    close: Sequence[int],
) -> int:
    """Hand a command and its streams to the agent; `close`: what only the command shall hold."""
    try:
        connection = await asyncio.to_thread(connect, folder.socket)
    except OSError as error:
        raise _refused(f"its agent does not answer: {error.strerror}") from error
    with connection:
        send_request(connection, request, descriptors)
        for each in close:
            os.close(each)
        connection.settimeout(0.0)
        try:
            answer = await asyncio.get_running_loop().sock_recv(connection, _ANSWER)
        except OSError:
            answer = b""
    return int(json.loads(answer)["exit"]) if answer else _GONE


def _refused(message: str, *, hint: str = "") -> InputError:
    return InputError.of(code="not_found", field="RUN", message=message, hint=hint)

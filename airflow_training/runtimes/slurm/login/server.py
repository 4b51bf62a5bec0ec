"""The other end of a login: `SlurmRuntime` on the login node, asked by lines and answering by lines.

It keeps nothing: whoever comes after it finds all in the shared folder. It ends with its connection, at any moment,
as any driver may.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import select
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow_training.runtimes.slurm.cluster import CommandCluster
from airflow_training.runtimes.slurm.login.messages import (
    WATCH,
    decode,
    encode,
    encode_error,
    line_of,
)
from airflow_training.runtimes.slurm.runtime import SlurmRuntime
from airflow_training.runtimes.slurm.transport import LocalCommands

__all__ = ["CALLS", "SILENCE_SECONDS", "main"]

SILENCE_SECONDS = 90.0
"""After which a connection counts as gone, though nobody has said so."""
_USED_SECONDS = 3600.0
"""Between two marks on our file: later logins delete what nobody has used for a week."""
CALLS = frozenset({
    "await_peers", "check", "cluster_view", "create", "delete", "delete_quarantined", "dismiss", "due_runs", "end_kept",
    "finish_early", "keep", "living_runs", "look_again", "prepare", "quarantine", "read_log", "release", "remove",
    "restart_process", "shell_words", "stop_process", "tail_log",
})  # fmt: skip
"""Methods of the runtime that are asked for and answered once."""


class _Server:
    """Answers one connection."""

    def __init__(self, runtime: SlurmRuntime, output: int) -> None:
        self._runtime = runtime
        self._output = output
        self._tasks: dict[int, asyncio.Task[None]] = {}

    def take(self, line: bytes) -> None:
        """Begin what a line asks for."""
        asked: Mapping[str, Any] = json.loads(line)
        number = int(asked["id"])
        if asked.get("cancel"):
            task = self._tasks.get(number)
            if task is not None:
                task.cancel()
            return
        task = asyncio.create_task(self._answer(number, asked))
        self._tasks[number] = task
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _answer(self, number: int, asked: Mapping[str, Any]) -> None:
        try:
            words, named = decode(asked["words"]), decode(asked["named"])
            if asked["call"] == WATCH:
                async for change in self._runtime.watch(*words, **named):
                    self.say({"id": number, "item": encode(change)})
            else:
                answer = await self._method(asked["call"])(*words, **named)
                self.say({"id": number, "answer": encode(answer)})
        except Exception as error:  # noqa: BLE001 - whatever it is, who has asked is told
            self.say({"id": number, "error": encode_error(error)})

    def _method(self, name: str) -> Callable[..., Awaitable[Any]]:
        if name not in CALLS:
            raise LookupError(f"{name} is no call")
        method: Callable[..., Awaitable[Any]] = getattr(self._runtime, name)
        return method

    def say(self, message: Mapping[str, Any]) -> None:
        data = memoryview(line_of(message))
        while data:
            data = data[os.write(self._output, data) :]


def _read_lines(loop: asyncio.AbstractEventLoop, server: _Server) -> None:
    """Hand lines over until the connection is gone; then nothing of us is needed any more."""
    rest = b""
    while True:
        ready, _, _ = select.select([0], [], [], SILENCE_SECONDS)
        data = os.read(0, 1 << 20) if ready else b""
        if not data:
            # what runs in threads may wait for a minute yet; all of it may be killed at any moment
            os._exit(0)
        *lines, rest = (rest + data).split(b"\n")
        for line in filter(None, lines):  # an empty one says that somebody is there
            loop.call_soon_threadsafe(server.take, line)


def main(folder: str, inherit: Sequence[str] = ()) -> int:
    """Answer until the connection ends; `folder` is seen by all nodes at the same path."""
    from airflow_training.runtimes.slurm.login.program import MARK

    output = os.dup(1)
    os.dup2(2, 1)  # what anything prints is no answer
    # a relative path of a job begins where a shell there begins
    os.chdir(Path.home())
    commands = LocalCommands(
        where="the login node",
        hint="a shell that nobody types in (ssh HOST sbatch --version) has to find it: load its module where that starts",
    )
    runtime = SlurmRuntime(root=Path(folder), inherit=inherit, cluster=CommandCluster(commands))
    server = _Server(runtime, output)
    ready = {"ready": sys.version.split()[0], "home": str(Path.home())}
    os.write(output, MARK.encode() + line_of(ready))

    async def serve() -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=_read_lines, args=(loop, server), daemon=True).start()
        while True:
            await asyncio.sleep(_USED_SECONDS)
            with contextlib.suppress(OSError):  # the shared folder is away
                os.utime(sys.argv[0])

    asyncio.run(serve())
    return 0

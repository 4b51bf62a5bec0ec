"""The process that reads values out of logs, as one of an event loop sees it: asked, watched, started again."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from weakref import WeakKeyDictionary

from airflow_training.state.store import Store
from airflow_training.supervise.followers.log_worker import (
    LogPieceResult,
    PieceOfLog,
    decode_answer,
    encode_piece,
    encode_store,
)

__all__ = ["LogWorker", "WorkerDied", "worker_of"]

_ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
"""Linear algebra that nobody uses would reserve memory for each core."""
_ANSWER_SECONDS = 60.0


class WorkerDied(Exception):
    """The worker went away before it answered; what it was given may be stored or not."""

    def __init__(self, message: str, *, killed: bool) -> None:
        """`killed`: by somebody, so that what it was given is not at fault."""
        super().__init__(message)
        self.killed = killed


class LogWorker:
    """The worker process of an event loop: started when it is first needed, and again when it died."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()
        self.users = 0
        """Followers; the process ends with the last."""

    @property
    def pid(self) -> int | None:
        """Return the process, while there is one."""
        return None if self._process is None else self._process.pid

    async def scan(self, piece: PieceOfLog, text: bytes) -> LogPieceResult:
        """Scan a piece in the worker; raises WorkerDied."""
        async with self._turn:
            asking = asyncio.ensure_future(self._ask(piece, text))
            try:
                await asyncio.wait({asking}, timeout=_ANSWER_SECONDS)
                if asking.done():
                    return asking.result()
                killed, reason = False, f"no answer within {_ANSWER_SECONDS:g} s"
            except (OSError, EOFError, ValueError) as error:
                killed, reason = await self._was_killed(), repr(error)
            except asyncio.CancelledError:
                asking.cancel()
                await self.stop()  # its answer would be taken for the next one
                raise
            asking.cancel()
            await self.stop()
            raise WorkerDied(f"the log worker died: {reason}", killed=killed)

    async def _was_killed(self) -> bool:
        """Return whether a signal ended the process that has closed its pipes."""
        if self._process is None:
            return False
        ended = asyncio.ensure_future(self._process.wait())
        await asyncio.wait({ended}, timeout=1.0)
        ended.cancel()
        return self._process.returncode in (-signal.SIGKILL, -signal.SIGTERM)

    async def _ask(self, piece: PieceOfLog, text: bytes) -> LogPieceResult:
        process = self._process or await self._start()
        writer, reader = process.stdin, process.stdout
        if writer is None or reader is None:
            raise EOFError
        writer.write(encode_piece(piece, text))
        await writer.drain()
        return decode_answer(await reader.readuntil(b"\n"))

    async def _start(self) -> asyncio.subprocess.Process:
        self._process = process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "airflow_training.supervise.followers.log_worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env={**os.environ, **_ONE_THREAD},
            start_new_session=True,  # Ctrl-C is for us: it would lose the end of the logs
        )
        if process.stdin is not None:
            process.stdin.write(encode_store(self._url))
        return process

    async def stop(self) -> None:
        """End the process, if there is one."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            process.kill()
        await process.wait()


_workers: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, LogWorker]] = WeakKeyDictionary()


def worker_of(store: Store) -> LogWorker:
    """Return the one worker of the running event loop for this store."""
    workers = _workers.setdefault(asyncio.get_running_loop(), {})
    return workers.setdefault(store.url, LogWorker(store.url))

"""`run --logs`: what the instances print, a line at a time with their names before it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import Cursor, InstanceRef, Runtime
from airflow_training.state.records import RunRecord
from airflow_training.supervise.waiting import alongside

if TYPE_CHECKING:
    from airflow_training.cli.live import EventPrinter, RunSource

__all__ = ["showing_logs"]

_LOOK_SECONDS = 0.5
_CHUNK_BYTES = 1 << 16
_Attempt = tuple[InstanceKey, AttemptId]


@contextlib.asynccontextmanager
async def showing_logs(
    runtime: Runtime, record: RunRecord, watched: RunSource, view: EventPrinter
) -> AsyncIterator[None]:
    """Print new lines of all instances while the body goes on, and what is left at its end."""
    logs = _Logs(runtime, record, watched, view)
    async with alongside(logs.run()):
        yield
        await logs.poll()


class _Logs:
    def __init__(
        self, runtime: Runtime, record: RunRecord, watched: RunSource, view: EventPrinter
    ) -> None:
        self._runtime = runtime
        self._record = record
        self._watched = watched
        self._view = view
        self._read: dict[_Attempt, tuple[Cursor, bytes]] = {}
        """Where reading goes on, and the beginning of a line that is not complete."""
        self._turn = asyncio.Lock()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            await self.poll()

    async def poll(self) -> None:
        ledger = self._watched.ledger
        async with self._turn:
            for entry in list(ledger.instances.values()) if ledger is not None else ():
                if entry.uid and (entry.was_running or entry.final):
                    with contextlib.suppress(RuntimeUnavailable):  # read at the next look
                        await self._show(entry)

    async def _show(self, entry: InstanceEntry) -> None:
        key = (entry.key, entry.attempt_id)
        cursor, begun = self._read.get(key, (Cursor(), b""))
        run = self._record.ref()
        ref = InstanceRef(run=run, key=entry.key, attempt_id=entry.attempt_id, uid=entry.uid)
        while True:
            chunk = await self._runtime.read_log(ref, cursor, limit=_CHUNK_BYTES)
            *lines, begun = (begun + chunk.data).split(b"\n")
            if chunk.end and begun:
                lines, begun = [*lines, begun], b""
            for line in lines:
                text = line.decode("utf-8", "replace").rstrip("\r")
                self._view.print_line(f"{entry.key} | {text}")
            cursor = chunk.next
            self._read[key] = cursor, begun
            if chunk.end or not chunk.data:
                return

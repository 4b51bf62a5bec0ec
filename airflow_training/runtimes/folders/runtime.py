"""`FolderRuntime`: the port, as far as the files of a run serve it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_training.agent.files import AttemptFolder, write_json, write_text
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.folders import expiry
from airflow_training.runtimes.folders.attempt_state import AttemptState
from airflow_training.runtimes.folders.orders import give_order, order_delete, order_release
from airflow_training.runtimes.folders.paths import RunFolder, attempt_of, locked
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk, ReleaseAnswer

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.agent.order import AgentCommand

__all__ = ["FolderRuntime"]


class FolderRuntime(ABC):
    """Everything that is known of instances lies below `root`: orders to agents, what they answer, logs.

    Any number of objects, in any number of processes, may serve the same folder.
    """

    log_place: ClassVar[str]
    """Where logs are, in words after "on": `this machine`."""

    def __init__(self, root: Path) -> None:
        self._root = root.absolute()

    @abstractmethod
    def _read(self, run: RunRef, folder: AttemptFolder) -> AttemptState | None:
        """Return how an attempt stands; None where nothing was ever ordered."""

    @abstractmethod
    def _find(self, ref: InstanceRef) -> tuple[AttemptFolder, AttemptState] | None:
        """Return the attempt that `ref` means: the object itself, or without a uid its numbers."""

    # the port ---------------------------------------------------------------------------------------
    async def release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        """Write the answer where the agents wait for it, and wake them."""
        await asyncio.to_thread(self._release, instances, answer)

    async def stop_process(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees, and to stay."""
        await asyncio.to_thread(
            self._order, instances, "stop", grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

    async def finish_early(self, instances: Sequence[InstanceRef], *, grace_seconds: float) -> None:
        """Order agents to end their commands as ones that have done all."""
        await asyncio.to_thread(self._order, instances, "finish", grace_seconds=grace_seconds)

    async def await_peers(
        self, instances: Sequence[InstanceRef], *, seconds: float, number: int
    ) -> None:
        """Tell agents that their scripts wait for others."""
        await asyncio.to_thread(self._order, instances, "await", seconds=seconds, number=number)

    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        """Replace files in the folders of attempts; raises LeaseLost."""
        await asyncio.to_thread(self._replace_files, given)

    async def can_replace_files(
        self,
        instances: Sequence[InstanceRef],  # noqa: ARG002  # the port asks for some, all are alike here
    ) -> bool:
        """Return that they can: whatever lies in the folders of attempts is ours."""
        return True

    async def dismiss(self, instances: Sequence[InstanceRef]) -> None:
        """Let agents that wait go."""
        await asyncio.to_thread(self._order, instances, "leave")

    async def keep(self, instance: InstanceRef, *, seconds: float) -> None:
        """Order an agent that waits to stay; its place stays with it."""
        await asyncio.to_thread(self._order, [instance], "stay", seconds=seconds)

    async def delete(
        self,
        instances: Sequence[InstanceRef],
        *,
        grace_seconds: float,
        dump_stacks: bool = False,
    ) -> None:
        """Order agents to end their process trees."""
        await asyncio.to_thread(
            self._delete, instances, grace_seconds=grace_seconds, dump_stacks=dump_stacks
        )

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        """Return bytes of the attempt's log file; offsets are those of the file."""
        return await asyncio.to_thread(self._read_log, instance, cursor, limit, attempt)

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        """Return the last bytes of the attempt's log file."""
        return await asyncio.to_thread(self._tail_log, instance, limit)

    async def collect_logs(
        self, run: RunRef, *, only: Collection[InstanceKey] | None = None
    ) -> None:
        """Do nothing: logs are files already."""
        del run, only

    async def due_runs(self) -> list[str]:
        """Return uids of runs here that may have outlived their `ttlSecondsAfterFinished`."""
        return await asyncio.to_thread(expiry.due_runs, self._root, now=time.time())

    async def look_again(self, uid: str, *, seconds: float) -> None:
        """Leave a run out of `due_runs` for so long."""
        await asyncio.to_thread(expiry.schedule_check, self._root, uid, at=time.time() + seconds)

    async def quarantine(self, run: RunRef) -> None:
        """Take a removed run's folder away; raises StillAlive for one that is not ours or lives."""
        await asyncio.to_thread(expiry.quarantine, self._root, run)

    async def delete_quarantined(self, uid: str) -> None:
        """Delete what was set aside; raises OSError where something of `uid` stays."""
        await asyncio.to_thread(expiry.delete_quarantined, self._root, uid)

    # inside, in threads -----------------------------------------------------------------------------
    def _folder(self, run: RunRef) -> RunFolder:
        return RunFolder(self._root, run.uid)

    @contextlib.contextmanager
    def _owned_folder(
        self, run: RunRef, job: ResolvedJob, about: Mapping[str, Any]
    ) -> Iterator[RunFolder]:
        """Make the run's folder ours and note what it is about; nobody else prepares it meanwhile.

        Raises LeaseLost for a generation that lost the run.
        """
        folder = self._folder(run)
        folder.make()
        refusal = folder.refuse_or_own(run.generation)
        if refusal:
            raise LeaseLost(f"run {run.uid}: {refusal}")
        known = {
            "job": run.job,
            "namespace": run.namespace,
            "controller": run.controller,
            "base_dir": job.base_dir,
            "submitted_at": run.submitted_at,
        }
        with locked(folder.prepare_lock):
            write_json(folder.about, {**known, **about})
            if job.ttl_seconds_after_finished is not None:
                at = time.time() + job.ttl_seconds_after_finished
                expiry.schedule_check(self._root, run.uid, at=at)
            yield folder

    def _release(self, instances: Sequence[InstanceRef], answer: ReleaseAnswer) -> None:
        for ref in instances:
            found = self._find(ref)
            if found is not None:
                order_release(found[0], found[1].uid, answer)

    def _replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        for ref, files in given:
            found, run = self._find(ref), self._folder(ref.run)
            if found is None:
                continue
            with locked(
                run.prepare_lock
            ):  # who takes the run over waits, and none of ours comes after theirs
                if ref.run.generation < run.generation:
                    raise LeaseLost(f"run {ref.run.uid}: generation {run.generation} owns the run")
                for name, text in files.items():
                    path = found[0].path / name
                    if not _holds(path, text):
                        write_text(path, text)

    def _delete(
        self, instances: Sequence[InstanceRef], *, grace_seconds: float, dump_stacks: bool
    ) -> None:
        for ref in instances:
            found = self._find(ref)
            if found is not None:
                folder, state = found
                order_delete(
                    folder, state.uid, grace_seconds=grace_seconds, dump_stacks=dump_stacks
                )

    def _order(
        self, instances: Sequence[InstanceRef], do: str, **more: Unpack[AgentCommand]
    ) -> None:
        for ref in instances:
            found = self._find(ref)
            if found is not None:
                give_order(found[0], found[1].uid, do, **more)

    def _attempt(self, ref: InstanceRef, attempt: int | None = None) -> AttemptFolder:
        return self._folder(ref.run).attempt(ref.role, ref.index, attempt_of(ref, attempt))

    def _read_log(
        self, ref: InstanceRef, cursor: Cursor, limit: int, attempt: int | None
    ) -> LogChunk:
        run, folder = self._folder(ref.run), self._attempt(ref, attempt)
        # looked at before reading: what is over then writes nothing after it
        state = self._read(ref.run, folder)
        over = run.removed_generation >= 0 if state is None else bool(state.end)
        try:
            with folder.log.open("rb") as file:
                file.seek(cursor.offset)
                data = file.read(limit)
        except FileNotFoundError:
            why = self._why_no_log(run, folder)
            return LogChunk(data=b"", next=cursor, end=over, missing=why)
        position = cursor.offset + len(data)
        return LogChunk(data=data, next=Cursor(offset=position), end=over and len(data) < limit)

    def _tail_log(self, ref: InstanceRef, limit: int) -> bytes:
        try:
            with self._attempt(ref).log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - limit))
                return file.read(limit)
        except FileNotFoundError:
            return b""

    def _why_no_log(self, run: RunFolder, attempt: AttemptFolder) -> str:
        """Return why there is no log of an attempt: one is made with its folder. "": it may be made yet."""
        if attempt.path.exists():
            return f"somebody removed it from {self.log_place}"
        if not run.path.exists():
            return (
                f"the folder of its run is not on {self.log_place}: somebody removed it,"
                " or it is on another one"
            )
        if run.removed_generation >= 0 or run.has_begun(attempt.instance.name):
            return f"its folder is not on {self.log_place}: somebody removed it"
        return ""


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_bytes() == text.encode()
    except OSError:
        return False

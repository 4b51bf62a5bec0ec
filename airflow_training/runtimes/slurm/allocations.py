"""The allocations of a run: asked for once, found again after a crash, used until they end.

`<run>/allocations/<id>/` is one `sbatch`; `<element>/` in it is one allocation (see `allocation_program`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from airflow_training.agent.files import AttemptFolder, read_json, write_json
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.cluster import SlurmCluster, SlurmSubmission, SubmitRefused
from airflow_training.runtimes.slurm.nodes import expand_nodes
from airflow_training.runtimes.slurm.queue_view import QueuedJob, is_near_end, read_job_id
from airflow_training.runtimes.slurm.queue_watch import QueueWatch, jobs_of
from airflow_training.runtimes.slurm.requests import (
    AllocationRequest,
    job_script,
    log_pattern,
)

__all__ = ["Allocation", "AllocationBook"]

Phase = Literal["asked", "queued", "running", "over"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Allocation:
    """One allocation of a run."""

    folder: Path
    request: AllocationRequest
    element: int

    @property
    def key(self) -> str:
        """Name it within its run: `<id>/<element>`."""
        return f"{self.folder.parent.name}/{self.element}"

    @property
    def submitted(self) -> Path:
        return self.folder.parent / "submitted.json"

    @property
    def job(self) -> str:
        """Return the id of its job as the queue lists it; "" where none is known."""
        # where sbatch had to be repeated, the job that began counts, which need not be the last
        found = self.started.get("job") or self._submitted_job
        return self._listed_as(found)

    @property
    def job_ids(self) -> Sequence[str]:
        """Return `job`, and the id of one that was submitted beside it where sbatch had to be repeated."""
        return sorted({id_ for id_ in (self.job, self._listed_as(self._submitted_job)) if id_})

    @property
    def name(self) -> str:
        """Return the name of its job."""
        request = self.folder.parent
        return f"airflow-training.{request.parent.parent.name}.{request.name}"

    @property
    def _submitted_job(self) -> str:
        return str((read_json(self.submitted) or {}).get("job", ""))

    def _listed_as(self, job: str) -> str:
        return f"{job}_{self.element}" if job and self.request.array else job

    @property
    def started(self) -> dict[str, Any]:
        return read_json(self.folder / "started.json") or {}

    @property
    def nodes(self) -> Set[str]:
        """Return the nodes that it has; empty until it has begun."""
        return {str(each["node"]) for each in self.started.get("members", {}).values()}

    @property
    def ended(self) -> bool:
        return (self.folder / "ended.json").exists()

    def is_for(self, instance: str) -> bool:
        """Return whether the instance (`<role>-<index>`) has a place in it."""
        return any(instance in names for names in self.request.elements[self.element])

    def step(self, uid: str) -> dict[str, Any] | None:
        """The record of a step that was started; None where it was not, or not yet."""
        return read_json(self.folder / "steps" / f"{uid}.json")

    def ask(self, uid: str, instance: str, attempt: AttemptFolder) -> bool:
        """Ask for a step, once; False where the allocation takes none any more."""
        name = f"{uid}.json"
        if any((self.folder / each / name).exists() for each in ("start", "steps", "cancelled")):
            return True
        try:
            folder = os.open(self.folder / "start", os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            return False
        try:
            # through the descriptor: `write_json` would make a folder anew that was just closed
            document = {"uid": uid, "instance": instance, "folder": str(attempt.path)}
            write_json(Path(f"/proc/self/fd/{folder}") / name, document)
            if not (
                self.folder / "start"
            ).exists():  # closed just then: take it back, unless it was seen
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(name, dir_fd=folder)
                    return False
        finally:
            os.close(folder)
        return True

    def give_up(self, uid: str) -> bool:
        """Take back what was asked for; False where its step was started."""
        name = f"{uid}.json"
        with contextlib.suppress(FileNotFoundError):
            (self.folder / "start" / name).rename(self.folder / "cancelled" / name)
            return True
        return (self.folder / "cancelled" / name).exists()

    @property
    def wanted(self) -> bool:
        """Return whether anything was asked for, and not taken back."""
        return any(
            not each.name.startswith(".")
            for folder in ("start", "steps")
            for each in _listed(self.folder / folder)
        )


def _listed(folder: Path) -> Sequence[Path]:
    try:
        return list(folder.iterdir())
    except FileNotFoundError:
        return ()


class AllocationBook:
    """The allocations of one run. Reads files and the queue as it was last seen."""

    def __init__(self, run: RunFolder, cluster: SlurmCluster, queue: QueueWatch) -> None:
        self._run = run
        self.cluster = cluster
        self._queue = queue
        self._known: dict[str, Allocation] = {}

    @property
    def _folder(self) -> Path:
        return self._run.path / "allocations"

    def __iter__(self) -> Iterator[Allocation]:
        """Yield all, the newest request first."""
        found = [(each.name, each) for each in _listed(self._folder)]
        for _, path in sorted(found, reverse=True):
            document = read_json(path / "request.json")
            if document is None:
                continue
            for element in range(len(document["elements"])):
                yield self.find(f"{path.name}/{element}")

    def find(self, key: str) -> Allocation:
        """Return the allocation of a key; raises KeyError."""
        if key not in self._known:
            name, _, element = key.partition("/")
            document = read_json(self._folder / name / "request.json")
            if document is None:
                raise KeyError(key)
            self._known[key] = Allocation(
                folder=self._folder / key,
                request=AllocationRequest.from_document(document),
                element=int(element),
            )
        return self._known[key]

    def phase(self, allocation: Allocation) -> Phase:
        """Return how far it is. One whose job the queue has forgotten is over."""
        if allocation.ended:
            return "over"
        job = allocation.job
        if not job:
            return "asked"
        listed = self._queue.of_job(job)
        if listed and (listed[0].over or all(each.over for each in listed)):
            return "over"
        if self.lost_keeper(allocation):
            return "over"
        # no clock of another machine is asked, as they differ
        if self._queue.named_at(job) < self._queue.asked_at and not listed:
            return "over"
        return "running" if allocation.started else "queued"

    def lost_keeper(self, allocation: Allocation) -> str:
        """Return the node that has kept an allocation and is not in it any more; "" where that is not so."""
        node = str(allocation.started.get("keeper", ""))
        nodes = (
            [each.nodes for each in self.jobs(allocation) if each.state == "RUNNING"]
            if node
            else []
        )
        return node if nodes and node not in expand_nodes(",".join(nodes)) else ""

    def jobs(self, allocation: Allocation) -> Sequence[QueuedJob]:
        """Return its job as last seen in the queue, with all components."""
        job = allocation.job
        return self._queue.of_job(job) if job else ()

    def accepting(self, instance: str, *, excluded: Collection[str] = ()) -> Allocation | None:
        """Return the newest allocation that has a place for an instance, takes steps and has time left.

        None that has one of the nodes `excluded`, as what trains together moves together.
        """
        for each in self:
            if (
                each.is_for(instance)
                and (each.folder / "start").is_dir()
                and self.phase(each) != "over"
                and not self._ends_soon(each)
                and (not excluded or each.nodes.isdisjoint(excluded))
            ):
                return each
        return None

    def _ends_soon(self, allocation: Allocation) -> bool:
        """Return whether its steps were told that its time is over: Slurm tells it once."""
        about = read_json(self._run.about) or {}
        warned = AllocationOptions.from_document(about.get("options", {})).signal_seconds
        return any(
            not each.waits and is_near_end(each, at=time.time(), warned=warned)
            for each in self.jobs(allocation)
        )

    def add(self, request: AllocationRequest, *, idle_seconds: float) -> list[Allocation]:
        """Write down what is to be asked for; `submit` asks."""
        # the newest is the greatest name
        name = f"{time.time_ns():020d}-{secrets.token_hex(3)}"
        path = self._folder / name
        for element in range(len(request.elements)):
            for folder in ("start", "steps", "cancelled"):
                (path / str(element) / folder).mkdir(mode=0o700, parents=True)
        write_json(path / "request.json", {**request.document(), "idle_seconds": idle_seconds})
        return [self.find(f"{name}/{element}") for element in range(len(request.elements))]

    def submit(self, allocation: Allocation, words: Sequence[str], *, job: str) -> None:
        """Have Slurm queue the request of an allocation, once, whoever was killed before.

        `words`: what keeps the allocation. Raises SubmitRefused and RuntimeUnavailable.
        """
        if allocation.submitted.exists():
            return
        path = allocation.folder.parent
        with _lock(path / "lock") as descriptor:
            if allocation.submitted.exists():
                return
            tried = path / "tried"
            if tried.exists():  # its sbatch has ended, as it holds the lock while it lives
                found = self._find_again(allocation)
                if found:
                    self._note(allocation, found)
                    return
            tried.touch()
            about = read_json(self._run.about) or {}
            asked = SlurmSubmission(
                request=allocation.request,
                options=AllocationOptions.from_document(about["options"]),
                name=allocation.name,
                comment=f"run {self._run.path.name} of {job}",
                output=log_pattern(str(path)),
                deadline_seconds=about.get("deadline_seconds"),
                script=job_script(words, folder=str(path), array=allocation.request.array),
            )
            try:
                said = self.cluster.submit(asked, keep=(descriptor,))
            except SubmitRefused:
                tried.unlink()
                raise
            found = read_job_id(said) or self._find_again(allocation)
            if not found:  # it may have been taken: asked by its name when this is tried again
                raise RuntimeUnavailable(f"Slurm told no job id: {' '.join(said.split())[-300:]!r}")
            self._note(allocation, found)

    def _find_again(self, allocation: Allocation) -> str:
        for each in self._queue.since(time.monotonic()).values():
            if each.name == allocation.name:
                return each.id.partition("_")[0].partition("+")[0]
        # what has run to its end meanwhile, and was forgotten, has left its number
        jobs = allocation.folder.parent
        return next((path.read_text() for path in sorted(jobs.glob("*/job"))), "")

    def _note(self, allocation: Allocation, job: str) -> None:
        write_json(allocation.submitted, {"job": job, "at": time.time()}, durable=True)
        self._queue.hurry()

    def cancel(self, allocations: Sequence[Allocation]) -> None:
        """Have Slurm end allocations; raises RuntimeUnavailable.

        A job of another name is not ours: numbers begin anew where a cluster has lost its state.
        """
        jobs = [
            job
            for each in allocations
            for job in each.job_ids
            if all(listed.name == each.name for listed in self._queue.of_job(job))
        ]
        if jobs:
            self.cluster.cancel(jobs)
            self._queue.hurry()

    def unsure(self) -> list[Allocation]:
        """Return allocations whose `sbatch` may have been taken although nobody has noted its job."""
        return [
            each
            for each in self
            if not each.submitted.exists() and (each.folder.parent / "tried").exists()
        ]

    def resolve_unsure(self) -> None:
        """Note the jobs of those; raises RuntimeUnavailable."""
        for each in self.unsure():
            with _lock(each.folder.parent / "lock"):
                if not each.submitted.exists():
                    found = self._find_again(each)
                    if found:
                        self._note(each, found)

    def living(self) -> list[Allocation]:
        """Return those that the queue, asked now, or their own files do not call over."""
        candidates = [each for each in self if each.job and not each.ended]
        if not candidates:
            return []
        jobs = self._queue.since(time.monotonic())
        return [
            each
            for each in candidates
            if not each.ended
            and any(
                not job.over and job.name == each.name
                for id_ in each.job_ids
                for job in jobs_of(jobs, id_)
            )
        ]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on a file; who inherits the descriptor holds it as long as it lives."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)

"""What runs ask of a Slurm cluster: to queue a job, what the queue has, to cancel. Here: by its commands."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.port import NodeView
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.nodes import parse_nodes, parse_topology
from airflow_training.runtimes.slurm.queue_view import (
    QUEUE_COMMAND,
    QueuedJob,
    SubmitAnswer,
    parse_queue,
    read_refusal,
)
from airflow_training.runtimes.slurm.requests import AllocationRequest, submit_command
from airflow_training.runtimes.slurm.transport import LocalCommands, SlurmCommands

__all__ = ["CommandCluster", "SlurmCluster", "SlurmSubmission", "SubmitRefused"]

_UNKNOWN_NODE = "Invalid node name"


class SubmitRefused(Exception):
    """Slurm did not take a job."""

    def __init__(self, answer: SubmitAnswer) -> None:
        super().__init__(answer.message)
        self.answer = answer


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSubmission:
    """One job of ours, as it is handed to Slurm."""

    request: AllocationRequest
    options: AllocationOptions
    name: str
    comment: str = ""
    output: str = "/dev/null"
    """File of what its script prints, `%` as Slurm reads it."""
    deadline_seconds: float | None = None
    script: str = "#!/bin/sh\n"


class SlurmCluster(Protocol):
    """One cluster as one user sees it. All of it blocks, and raises RuntimeUnavailable where nobody answers."""

    @property
    def longest_array(self) -> int:
        """Return how many allocations one request asks for at most; 1: there are no arrays."""

    def submit(self, job: SlurmSubmission, *, keep: Sequence[int] = ()) -> str:
        """Queue a job, and return what was said: its id is the last line that is a number. Raises SubmitRefused.

        `keep`: descriptors that stay open until Slurm has taken it, as far as that can be known.
        """

    def find_refusal(self, job: SlurmSubmission) -> SubmitAnswer | None:
        """Ask what would be said against a job, without queueing it; None: nothing."""

    def queue(self) -> dict[str, QueuedJob]:
        """Id -> job, of all jobs of the user, and of those that ended lately; one request."""

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs; one that has ended, or that nobody knows, is no error."""

    def nodes(self, partition: str) -> list[NodeView]:
        """Return nodes that take jobs, of the partition where one is named."""


@dataclass(frozen=True, slots=True)
class CommandCluster:
    """The cluster that the commands of a login node reach."""

    commands: SlurmCommands = field(default_factory=LocalCommands)
    longest_array: int = 100

    def submit(self, job: SlurmSubmission, *, keep: Sequence[int] = ()) -> str:
        """Queue a job by `sbatch`."""
        words = _words(job)
        done = self.commands.run(words, given=job.script, keep=keep)
        if done.code != 0 and _UNKNOWN_NODE in done.errors and job.request.excluded:
            # one of the nodes to leave out is none of the cluster any more, and Slurm does not say which
            words = [each for each in words if not each.startswith("--exclude=")]
            done = self.commands.run(words, given=job.script, keep=keep)
        if done.code == 0:
            return done.output
        answer = read_refusal(done.errors)
        if answer.kind == "away":
            raise RuntimeUnavailable(f"sbatch: {answer.message}")
        raise SubmitRefused(answer)

    def find_refusal(self, job: SlurmSubmission) -> SubmitAnswer | None:
        """Ask `sbatch --test-only`."""
        words = _words(job)
        done = self.commands.run([words[0], "--test-only", *words[1:]], given=job.script)
        return None if done.code == 0 else read_refusal(done.errors)

    def queue(self) -> dict[str, QueuedJob]:
        """Id -> job, as `squeue` lists them."""
        done = self.commands.run([*QUEUE_COMMAND, f"--user={os.getuid()}"])
        if done.code != 0:
            raise RuntimeUnavailable(f"squeue: {_tail(done.errors)}")
        return parse_queue(done.output)

    def cancel(self, jobs: Sequence[str]) -> None:
        """End jobs by `scancel`."""
        done = self.commands.run(["scancel", "--quiet", *jobs])
        if done.code != 0 and "Invalid job id" not in done.errors:
            raise RuntimeUnavailable(f"scancel: {_tail(done.errors)}")

    def nodes(self, partition: str) -> list[NodeView]:
        """Return nodes and the switches that they hang on, from `scontrol`."""
        done = self.commands.run(["scontrol", "show", "nodes", "--oneliner"])
        if done.code != 0:
            raise RuntimeUnavailable(f"scontrol: {_tail(done.errors)}")
        topology = self.commands.run(["scontrol", "show", "topology", "--oneliner"])
        switches = parse_topology(topology.output) if topology.code == 0 else {}
        return parse_nodes(done.output, partition=partition, switches=switches)


def _words(job: SlurmSubmission) -> list[str]:
    return submit_command(
        job.request,
        job.options,
        name=job.name,
        comment=job.comment,
        output=job.output,
        deadline_seconds=job.deadline_seconds,
    )


def _tail(text: str) -> str:
    return " ".join(text.split())[-300:]

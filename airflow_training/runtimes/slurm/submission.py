"""What Slurm would say to a job, before it is submitted: `sbatch --test-only`."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem, RuntimeUnavailable
from airflow_training.runtimes.port import InstanceSpec
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.queue_view import read_refusal
from airflow_training.runtimes.slurm.requests import (
    AllocationComponent,
    gang_components,
    gang_request,
    single_requests,
    submit_command,
)
from airflow_training.runtimes.slurm.transport import SlurmCommands

__all__ = ["find_refusals"]


_PERHAPS_LATER = "node configuration is not available"


def find_refusals(
    commands: SlurmCommands, job: ResolvedJob, firsts: Sequence[InstanceSpec]
) -> Sequence[Problem]:
    """Problems for which Slurm would never take the job; nothing is queued.

    A heterogeneous job is tested component by component, as Slurm tests no whole one. Raises
    RuntimeUnavailable.
    """
    gang = gang_components(job)
    if gang:
        requests = [gang_request({role: each}) for role, each in gang.items() if each[1]]
    else:
        components = {
            f"{each.ref.role}-0": AllocationComponent.of_resources(each.resources)
            for each in firsts
        }
        requests = single_requests(components)
    found: dict[str, Problem] = {}
    for request in requests:
        words = submit_command(
            request,
            AllocationOptions.from_document(job.runtime_options),
            name="airflow-training.test",
            comment="",
            output="/dev/null",
            deadline_seconds=job.active_deadline_seconds,
        )
        done = commands.run([words[0], "--test-only", *words[1:]], given="#!/bin/sh\n")
        # said of nodes that are down or drained too, for which `sbatch` lets a job wait
        if done.code == 0 or _PERHAPS_LATER in done.errors:
            continue
        answer = read_refusal(done.errors)
        if answer.kind == "away":
            raise RuntimeUnavailable(f"sbatch: {answer.message}")
        if answer.kind == "impossible":
            found[answer.message] = Problem(
                code="not_allowed",
                field="spec.runtime.options",
                value=dict(job.runtime_options),
                message=f"Slurm does not take the job: {answer.message}",
                hint="look at partition, account, qos, constraint, time and at the resources of the roles",
            )
    return list(found.values())

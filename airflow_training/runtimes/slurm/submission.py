"""What Slurm would say to a job, before it is submitted: `sbatch --test-only`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem, RuntimeUnavailable
from airflow_training.runtimes.port import InstanceSpec
from airflow_training.runtimes.slurm.allocation_options import AllocationOptions
from airflow_training.runtimes.slurm.cluster import SlurmCluster, SlurmSubmission
from airflow_training.runtimes.slurm.requests import (
    AllocationComponent,
    gang_components,
    gang_request,
    single_requests,
)

__all__ = ["find_refusals"]


_PERHAPS_LATER = "node configuration is not available"


def find_refusals(
    cluster: SlurmCluster, job: ResolvedJob, firsts: Sequence[InstanceSpec]
) -> Sequence[Problem]:
    """Problems for which Slurm would never take the job; nothing is queued.

    A heterogeneous job is tested component by component, as Slurm tests no whole one. Raises
    RuntimeUnavailable.
    """
    gang = gang_components(job)
    options = AllocationOptions.from_document(job.runtime_options)
    if gang:
        requests = [gang_request(gang, options)]
        if len(requests[0].components) > 1:
            alone = replace(options, spare_nodes=0)
            requests = [gang_request({role: each}, alone) for role, each in gang.items() if each[1]]
    else:
        components = {
            f"{each.ref.role}-0": AllocationComponent.of_resources(each.resources)
            for each in firsts
        }
        requests = single_requests(components, longest_array=cluster.longest_array)
    found: dict[str, Problem] = {}
    for request in requests:
        answer = cluster.find_refusal(
            SlurmSubmission(
                request=request,
                options=options,
                name="airflow-training.test",
                deadline_seconds=job.active_deadline_seconds,
            )
        )
        # said of nodes that are down or drained too, for which `sbatch` lets a job wait
        if answer is None or _PERHAPS_LATER in answer.message:
            continue
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

"""What a group of Kueue cannot do that a job may ask of it, and what keeps its quota. Pure."""

from __future__ import annotations

from airflow_training.control.waves import waves
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.capabilities import CAPABILITIES

__all__ = ["kueue_problems", "kueue_warnings", "unknown_kind"]

_KUEUE_SHAPES = 8


def unknown_kind(job: ResolvedJob) -> list[Problem]:
    """Return `not_supported` for a gang that only another runtime has: nothing would make its group."""
    gang = job.scheduling.gang
    if gang in CAPABILITIES.gangs:
        return []
    return [
        Problem(
            code="not_supported",
            field="spec.schedulingPolicy.gang",
            value=gang,
            message="no scheduler of Kubernetes has such gangs",
            allowed=CAPABILITIES.gangs,
        )
    ]


def kueue_problems(job: ResolvedJob) -> list[Problem]:
    """Fields that a Kueue group of plain pods cannot honour; empty for any other gang.

    Such a group has a fixed number of pods: it starts when all of them exist, replaces one by one,
    and has an extra one deleted. Its pods may have at most eight different shapes.
    """
    if job.scheduling.gang != "kueue":
        return []
    problems, startup = [], job.scheduling.startup
    wanted = job.scheduling.min_available
    if wanted is not None and wanted < job.instances:
        problems.append(
            Problem(
                code="not_supported",
                field="spec.schedulingPolicy.minAvailable",
                value=wanted,
                message=f"Kueue starts a group when all of its pods ({job.instances}) exist",
                hint="leave minAvailable out, or use gang: volcano or coscheduling",
            )
        )
    if startup == "firstWaveReserveAll":
        problems.append(
            Problem(
                code="not_supported",
                field="spec.schedulingPolicy.startup",
                value=startup,
                message="a Kueue group reserves for the pods that exist, not for those to come",
                allowed=("auto", "perWave", "createAllHold"),
                hint="use startup: auto",
            )
        )
    growing = [r.name for r in job.roles if r.max_replicas and r.max_replicas > r.replicas]
    if growing:
        problems.append(
            Problem(
                code="not_supported",
                field="spec.schedulingPolicy.gang",
                value="kueue",
                message=f"{', '.join(growing)} may grow (maxReplicas), but a Kueue group cannot:"
                " pods beyond its total would be deleted",
                hint="use maxReplicas: <replicas>, or gang: volcano or coscheduling",
            )
        )
    largest = max((len(each) for each in _kueue_groups(job, startup)), default=0)
    if largest > _KUEUE_SHAPES:
        problems.append(
            Problem(
                code="not_supported",
                field="spec.schedulingPolicy.gang",
                value="kueue",
                message=f"a Kueue group has at most {_KUEUE_SHAPES} kinds of pods, and"
                f" {largest} roles would be in one",
                hint="use startup: perWave, or gang: volcano or coscheduling",
            )
        )
    return problems


def kueue_warnings(job: ResolvedJob) -> list[Problem]:
    """Return a warning for each role whose ended instances may hold their quota as long as the group lasts.

    Kueue takes back the place of a pod that has succeeded, which one has not whose other containers
    leave another exit code than 0 as they are told to end.
    """
    if job.scheduling.gang != "kueue" or job.instances < 2:
        return []
    return [
        Problem(
            code="not_supported",
            field=f"spec.roles.{role.name}.template.spec.containers",
            value=", ".join(beside),
            message="Kueue takes back the quota of an instance that has ended only where these containers"
            " leave exit code 0 when they are told to end; else with its whole group",
            hint="make each a sidecar: an init container with restartPolicy: Always",
        )
        for role in job.roles
        if role.replicas and (beside := _beside(role))
    ]


def _beside(role: ResolvedRole) -> list[str]:
    """Return the containers of a role's pods that are not the training one."""
    pod = mapping(role.template.get("spec"))
    named = [str(each.get("name")) for each in mappings(pod.get("containers"))]
    return [name for name in named if name != role.container]


def _kueue_groups(job: ResolvedJob, startup: str) -> list[list[str]]:
    groups = waves(job) if startup == "perWave" else [[role.name for role in job.roles]]
    return [[name for name in group if job.role(name).replicas] for group in groups]

"""What is left of a namespace's quotas, before the first pods are made of a job that needs all of them.

No look is atomic: another job may take the rest before our pods are made. Then the server refuses some
of them, and `control.place_release` sees to it that nobody holds half for ever.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_training.control.recovery import needs_all
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Forbidden
from airflow_training.runtimes.kubernetes.gangs import pod_requests, summed, written
from airflow_training.runtimes.kubernetes.kinds import RESOURCE_QUOTAS

__all__ = ["exhausted_quota", "has_more_room", "needs_together", "room_problems", "shortage"]


def needs_together(job: ResolvedJob) -> Mapping[str, str]:
    """Sum of all pods' requests, where no pod is of use without the others.

    Empty for other jobs, and where a gang scheduler or a queue sees to it.
    """
    if job.scheduling.gang != "none" or not needs_all(job):
        return {}
    return _needs_of_all(job)


def _needs_of_all(job: ResolvedJob) -> Mapping[str, str]:
    """Sum of all pods' requests."""
    each = [
        {**pod_requests(role.template.get("spec") or {}), "pods": 1.0}
        for role in job.roles
        for _ in range(role.replicas)
    ]
    return written(summed(each))


async def shortage(api: Api, namespace: str, needs: Mapping[str, str]) -> ApiError | None:
    """Return the server's refusal of all pods together, as it would be; None where there is room.

    None also where quotas are not ours to see: creating will tell.
    """
    try:
        quotas, _ = await api.list(RESOURCE_QUOTAS, namespace)
    except ApiError:
        return None
    said = exhausted_quota(quotas, needs)
    return Forbidden(403, "Forbidden", said) if said else None


async def room_problems(api: Api, job: ResolvedJob) -> Sequence[Problem]:
    """Return the quota of the namespace that has too little left for all pods of a job; none where there is room."""
    short = await shortage(api, job.namespace, _needs_of_all(job))
    if short is None:
        return []
    return [
        Problem(
            code="out_of_range",
            field="resources",
            value=job.instances,
            message=f"namespace {job.namespace}: {short}",
            hint="ask for less, or wait until others have ended",
        )
    ]


def exhausted_quota(quotas: Sequence[Mapping[str, Any]], needs: Mapping[str, str]) -> str:
    """Return which quota has too little left for all of `needs`, as a server says it; "" where none."""
    for quota in quotas:
        spec, status = quota.get("spec") or {}, quota.get("status") or {}
        if spec.get("scopes") or spec.get("scopeSelector"):
            continue  # it may not hold for these pods
        used = status.get("used") or {}
        for resource, hard in (spec.get("hard") or {}).items():
            wanted = needs.get(resource.removeprefix("requests.").removeprefix("count/"))
            taken = used.get(resource, "0")
            # what asks for nothing of it is not refused, even where too much of it is used
            if wanted is not None and parse_quantity(wanted) > parse_quantity(
                hard
            ) - parse_quantity(taken):
                name = quota["metadata"]["name"]
                return (
                    f"exceeded quota: {name}, requested by all pods together: {resource}={wanted},"
                    f" used: {resource}={taken}, limited: {resource}={hard}"
                )
    return ""


def has_more_room(before: Mapping[str, Any], after: Mapping[str, Any] | None) -> bool:
    """Return whether a quota leaves more of anything than it did. `after` None: it is gone."""
    if after is None:
        return True
    limits = [(quota.get("spec") or {}).get("hard") or {} for quota in (before, after)]
    if _is_larger(*limits, gone=True):
        return True
    status = [quota.get("status") or {} for quota in (before, after)]
    hard, used = ([each.get(key) or {} for each in status] for key in ("hard", "used"))
    return _is_larger(*hard, gone=False) or _is_larger(*reversed(used), gone=False)


def _is_larger(before: Mapping[str, str], after: Mapping[str, str], *, gone: bool) -> bool:
    """Return whether any amount is larger than before; `gone`: or is not there any more."""
    return any(
        gone if name not in after else parse_quantity(after[name]) > parse_quantity(amount)
        for name, amount in before.items()
    )

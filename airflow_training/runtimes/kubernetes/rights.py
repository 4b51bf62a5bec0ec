"""What a job needs of a cluster, found out before anything is created.

Every gap is named with the way to close it: a missing right as the rule to add to a Role. What
else the server refuses (a quota, PodSecurity, a webhook), it says itself of a pod of each role.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from airflow_training.control.recovery import needs_all
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import (
    AlreadyExists,
    ApiError,
    Forbidden,
    NotFound,
)
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.gangs import pod_requests
from airflow_training.runtimes.kubernetes.kinds import (
    CONFIG_MAPS,
    COSCHEDULING_GROUPS,
    EVENTS,
    KUEUE_LOCAL_QUEUES,
    KUEUE_WAITING,
    KUEUE_WORKLOADS,
    NAMESPACES,
    NETWORK_POLICIES,
    PODS,
    PODS_OF_ALL,
    PRIORITY_CLASSES,
    RESOURCE_QUOTAS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VOLCANO_GROUPS,
    VOLCANO_QUEUES,
    ResourceKind,
)
from airflow_training.runtimes.kubernetes.refusals import field_of, refusal_of

__all__ = [
    "USEFUL_RIGHTS",
    "allowed_instances",
    "check_cluster",
    "held_gpus",
    "namespace_visibility",
    "needed_rights",
    "unused_queues",
]

_ONLY_OF_A_QUESTION = "does not support dry run"
"""What a webhook says that does more than to look."""
_ALIVE = "status.phase!=Succeeded,status.phase!=Failed"

Right = tuple[ResourceKind, str, str]
"""Kind, subresource ("" for the object itself), verb."""

_EVERY_RUN: Mapping[tuple[ResourceKind, str], Sequence[str]] = {
    (PODS, ""): ("create", "get", "list", "watch", "patch", "delete"),
    (PODS, "log"): ("get",),
    (SERVICES, ""): ("create", "get", "list", "delete"),
    (CONFIG_MAPS, ""): ("create", "get", "list", "update", "patch", "delete"),
}
USEFUL_RIGHTS: Sequence[Right] = (
    (KUEUE_WORKLOADS[0], "", "list"),
    (KUEUE_WAITING[0], "pendingworkloads", "get"),
    (EVENTS, "", "list"),
    (RESOURCE_QUOTAS, "", "list"),
    (RESOURCE_QUOTAS, "", "watch"),
)
"""What tells in a namespace why pods wait, and what is left of a quota, now and later: nothing fails without."""
_OBJECT_VERBS = ("create", "get", "list", "delete")
_GROUP_VERBS = ("create", "get", "list", "patch", "delete")
_GROUP_KINDS: Mapping[str, ResourceKind] = {
    "volcano": VOLCANO_GROUPS,
    "coscheduling": COSCHEDULING_GROUPS,
}
_GANG_KINDS: Mapping[str, Sequence[ResourceKind]] = {
    **{gang: (kind,) for gang, kind in _GROUP_KINDS.items()},
    "kueue": KUEUE_LOCAL_QUEUES,
}
"""What a cluster serves where a gang is installed: the first one there is."""


def needed_rights(facts: RunFacts, *, callback: bool = False) -> Sequence[Right]:
    """Return every right that the run of a job uses in its namespace."""
    needed = dict(_EVERY_RUN)
    if facts.ssh or callback:
        needed[SECRETS, ""] = _OBJECT_VERBS
    if any(role.network_policy for role in facts.roles.values()):
        needed[NETWORK_POLICIES, ""] = _OBJECT_VERBS
    kind = _GROUP_KINDS.get(facts.gang.kind)
    if kind is not None:
        needed[kind, ""] = _GROUP_VERBS
    return [(kind, sub, verb) for (kind, sub), verbs in needed.items() for verb in verbs]


async def check_cluster(
    api: Api,
    job: ResolvedJob,
    facts: RunFacts,
    pods: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    *,
    callback: bool = False,
) -> list[Problem]:
    """Problems that keep the job from running in its namespace; raises RuntimeUnavailable.

    `pods`: role -> its first pod, which the server is asked about.
    """
    lacks = await asyncio.gather(
        _namespace(api, job),
        _rights(api, job, needed_rights(facts, callback=callback)),
        _service_accounts(api, job),
        _scheduling(api, job),
    )
    problems = [problem for problems in lacks for problem in problems]
    if not problems:  # else the server would only say the same
        refusals = await asyncio.gather(
            *(_refusal(api, job, role, pod) for role, pod in pods.items())
        )
        problems += [problem for problems in refusals for problem in problems]
    return [*problems, *await _quota(api, job)]


async def _refusal(api: Api, job: ResolvedJob, role: str, pod: Mapping[str, Any]) -> list[Problem]:
    """Return why the server would not take a pod, in its own words."""
    try:
        await api.create(PODS, job.namespace, pod, dry_run=True)
    except AlreadyExists:
        return []
    except ApiError as error:
        if refusal_of(error).answer == "later" or _ONLY_OF_A_QUESTION in str(error):
            return []
        return [
            Problem(
                code="not_allowed",
                field=field_of(error, pod, job.role(role)),
                value=role,
                message=f"namespace '{job.namespace}' refuses its pods: {error}",
            )
        ]
    return []


async def namespace_visibility(api: Api, namespace: str) -> Mapping[str, Any] | str:
    """Return a namespace, `missing`, or `hidden` where we may not see whether it is there."""
    return await _look(api, NAMESPACES, "", namespace)


async def _namespace(api: Api, job: ResolvedJob) -> list[Problem]:
    found = await namespace_visibility(api, job.namespace)
    if found == "missing":
        return [
            Problem(
                code="bad_reference",
                field="metadata.namespace",
                value=job.namespace,
                message=f"the cluster has no namespace '{job.namespace}'",
                hint=f"kubectl create namespace {job.namespace}",
            )
        ]
    if isinstance(found, Mapping) and found["metadata"].get("deletionTimestamp"):
        return [
            Problem(
                code="bad_reference",
                field="metadata.namespace",
                value=job.namespace,
                message=f"namespace '{job.namespace}' is being deleted",
            )
        ]
    return []


async def _rights(api: Api, job: ResolvedJob, needed: Sequence[Right]) -> list[Problem]:
    answers = await asyncio.gather(
        *(api.allowed(verb, kind, job.namespace, sub) for kind, sub, verb in needed)
    )
    missing = [right for right, allowed in zip(needed, answers, strict=True) if not allowed]
    if not missing:
        return []
    text = ", ".join(f"{verb} {_resource(kind, sub)}" for kind, sub, verb in missing)
    return [
        Problem(
            code="not_allowed",
            field="metadata.namespace",
            value=job.namespace,
            message=f"the connection may not {text} in namespace '{job.namespace}'",
            hint="add to its Role there:\n" + _rules(missing),
        )
    ]


def _resource(kind: ResourceKind, subresource: str) -> str:
    return f"{kind.plural}/{subresource}" if subresource else kind.plural


def _rules(missing: Sequence[Right]) -> str:
    """Return the rules of a Role as YAML, one for each resource."""
    verbs: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for kind, sub, verb in missing:
        verbs[kind.group, _resource(kind, sub)].append(verb)
    return "\n".join(
        f'  - apiGroups: ["{group}"]\n    resources: ["{resource}"]\n'
        f"    verbs: [{', '.join(wanted)}]"
        for (group, resource), wanted in verbs.items()
    )


async def _service_accounts(api: Api, job: ResolvedJob) -> list[Problem]:
    problems = []
    for name, role in _named(job, "serviceAccountName"):
        if await _look(api, SERVICE_ACCOUNTS, job.namespace, name) == "missing":
            problems.append(
                Problem(
                    code="bad_reference",
                    field=f"spec.roles.{role}.template.spec.serviceAccountName",
                    value=name,
                    message=f"namespace '{job.namespace}' has no service account '{name}'",
                )
            )
    return problems


async def _scheduling(api: Api, job: ResolvedJob) -> list[Problem]:
    wanted = job.scheduling
    problems = []
    gangs = _GANG_KINDS.get(wanted.gang, ())
    served = [kind for kind in gangs if await api.serves(kind)]
    if gangs and not served:
        gang = gangs[0]
        return [
            Problem(
                code="not_supported",
                field="spec.schedulingPolicy.gang",
                value=wanted.gang,
                message=f"the cluster does not know {gang} ({gang.version}):"
                f" {wanted.gang} is not installed there",
                hint="install it, or take another gang",
            )
        ]
    queue = VOLCANO_QUEUES if wanted.gang == "volcano" else None
    if wanted.gang == "kueue":
        queue = served[0]
    if (
        queue is not None
        and wanted.queue
        and await _look(api, queue, job.namespace, wanted.queue) == "missing"
    ):
        where = f"namespace '{job.namespace}'" if queue.namespaced else "the cluster"
        problems.append(
            Problem(
                code="bad_reference",
                field="spec.schedulingPolicy.queue",
                value=wanted.queue,
                message=f"{where} has no queue '{wanted.queue}' ({queue})",
                allowed=await _names_of(api, queue, job.namespace),
            )
        )
    priorities = {wanted.priority_class_name} if wanted.priority_class_name else set()
    priorities |= {name for name, _ in _named(job, "priorityClassName")}
    missing = [
        name
        for name in sorted(priorities)
        if await _look(api, PRIORITY_CLASSES, "", name) == "missing"
    ]
    known = await _names_of(api, PRIORITY_CLASSES, "") if missing else ()
    problems += [
        Problem(
            code="bad_reference",
            field="spec.schedulingPolicy.priorityClassName",
            value=name,
            message=f"the cluster has no priority class '{name}'",
            allowed=known,
        )
        for name in missing
    ]
    return problems


async def unused_queues(api: Api, job: ResolvedJob) -> list[Problem]:
    """Return a hint at the queues of the namespace where a job needs all of its pods and uses none."""
    if job.scheduling.gang != "none" or not needs_all(job):
        return []
    for kind in KUEUE_LOCAL_QUEUES:
        queues = await _names_of(api, kind, job.namespace)
        if queues:
            return [
                Problem(
                    code="not_used",
                    field="spec.schedulingPolicy.gang",
                    value="none",
                    message="a part of the job may hold places while the rest waits, and it needs all of its"
                    f" instances: namespace '{job.namespace}' has queues that let all of them in or none",
                    hint=f"schedulingPolicy: {{gang: kueue, queue: {queues[0]}}}",
                )
            ]
    return []


async def _quota(api: Api, job: ResolvedJob) -> list[Problem]:
    """Return a problem for each quota that the job would exceed alone in its namespace.

    An elastic role counts with as few instances as it can train with.
    """
    needs = _needs([replace(role, replicas=job.least_of(role.name)) for role in job.roles])
    return [
        Problem(
            code="not_allowed",
            field="spec.roles",
            value=f"{needed:g}",
            message=f"all instances together ask for {needed:g} of {limit.resource}, quota"
            f" '{limit.quota}' of namespace '{job.namespace}' allows {limit.hard}",
            hint="fewer replicas, smaller requests, or a larger quota",
        )
        for limit in await _limits(api, job.namespace)
        if (needed := needs.get(limit.counted, 0.0)) > limit.amount
    ]


async def allowed_instances(api: Api, job: ResolvedJob) -> int | None:
    """Return how many instances with a rank quotas let a job have beside its others; None: any number.

    What others in the namespace use is not counted: it may be given back at any time.
    """
    ranked = [role for role in job.roles if role.rank_offset is not None]
    others = _needs([role for role in job.roles if role.rank_offset is None])
    each = [_needs([replace(role, replicas=1)]) for role in ranked]
    found = []
    for limit in await _limits(api, job.namespace):
        most = max((needs.get(limit.counted, 0.0) for needs in each), default=0.0)
        if most:
            found.append(int((limit.amount - others.get(limit.counted, 0.0)) // most))
    return max(0, min(found)) if found else None


async def held_gpus(api: Api) -> Mapping[str, int] | None:
    """Return node -> GPUs that pods of any namespace hold on it; None where we may not see them."""
    try:
        pods, _ = await api.list(PODS_OF_ALL, fields=_ALIVE)
    except Forbidden:
        return None
    held: defaultdict[str, int] = defaultdict(int)
    for pod in pods:
        node = pod["spec"].get("nodeName", "")
        held[node] += int(pod_requests(pod["spec"]).get("nvidia.com/gpu", 0))
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class _Limit:
    """One line of a quota."""

    quota: str
    resource: str
    hard: str

    @property
    def counted(self) -> str:
        """Return what a pod's requests call it."""
        return self.resource.removeprefix("requests.").removeprefix("count/")

    @property
    def amount(self) -> float:
        return parse_quantity(self.hard)


async def _limits(api: Api, namespace: str) -> Sequence[_Limit]:
    """Return the quotas of a namespace that hold for every pod; none where they are not ours to see."""
    try:
        quotas, _ = await api.list(RESOURCE_QUOTAS, namespace)
    except ApiError:
        return ()  # creating will tell
    return [
        _Limit(quota=quota["metadata"]["name"], resource=resource, hard=str(hard))
        for quota in quotas
        if not (quota["spec"].get("scopes") or quota["spec"].get("scopeSelector"))
        for resource, hard in (quota["spec"].get("hard") or {}).items()
    ]


def _needs(roles: Sequence[ResolvedRole]) -> Mapping[str, float]:
    total: defaultdict[str, float] = defaultdict(float)
    for role in roles:
        for resource, amount in pod_requests(role.template.get("spec") or {}).items():
            total[resource] += amount * role.replicas
        total["pods"] += role.replicas
    return total


def _named(job: ResolvedJob, key: str) -> Iterator[tuple[str, str]]:
    """Yield (what a role's pod template says under `key`, role), each value once."""
    seen = set()
    for role in job.roles:
        name = (role.template.get("spec") or {}).get(key)
        if name and name not in seen:
            seen.add(name)
            yield str(name), role.name


async def _look(api: Api, kind: ResourceKind, namespace: str, name: str) -> Mapping[str, Any] | str:
    """Return the object, `missing`, or `hidden` where we may not see it."""
    try:
        return await api.get(kind, namespace, name)
    except NotFound:
        return "missing"
    except Forbidden:
        return "hidden"


async def _names_of(api: Api, kind: ResourceKind, namespace: str) -> Sequence[str]:
    try:
        found, _ = await api.list(kind, namespace)
    except ApiError:
        return ()
    return [each["metadata"]["name"] for each in found]

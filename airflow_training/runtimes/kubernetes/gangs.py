"""Gangs: which pods are placed together, and what marks them for Volcano, coscheduling and Kueue. Pure.

Volcano: PodGroup of `scheduling.volcano.sh/v1beta1`, pods name it in an annotation. Coscheduling:
PodGroup of `scheduling.x-k8s.io/v1alpha1`, pods name it in a label. Kueue: groups of plain pods
(`kueue.x-k8s.io` labels and annotations, no object); it starts a group when all its pods exist.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.control.gang import gang_sizes
from airflow_training.control.waves import waves
from airflow_training.documents.quantities import parse_quantity
from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = [
    "GROUP_APIS",
    "Gang",
    "GangGroup",
    "GangMarks",
    "gang_of",
    "marks_at_end",
    "marks_of",
    "pod_group_documents",
    "pod_requests",
    "summed",
    "written",
]

GROUP_APIS: Mapping[str, str] = {
    "volcano": "scheduling.volcano.sh/v1beta1",
    "coscheduling": "scheduling.x-k8s.io/v1alpha1",
}
"""Kind of gang -> apiVersion of its PodGroup; Kueue has no object of ours."""
_VOLCANO_GROUP = (names.VOLCANO_GROUP, "scheduling.volcano.sh/group-name")
_KUEUE_TOTAL = "kueue.x-k8s.io/pod-group-total-count"
_KUEUE_NO_REPLACEMENT = {names.KUEUE_RETRIABLE: "false"}
_KUEUE_FINALIZER = "kueue.x-k8s.io/managed"
_SCHEDULERS: Mapping[str, str] = {
    "volcano": "volcano",
    "coscheduling": "scheduler-plugins-scheduler",
}
_BINARY = (("Gi", 2**30), ("Mi", 2**20))


@dataclass(frozen=True, slots=True, kw_only=True)
class GangGroup:
    """Instances that are placed together or not at all."""

    name: str
    roles: Sequence[str]
    min_member: int
    total: int
    min_resources: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Gang:
    """What a run asks of its scheduler."""

    kind: str = "none"
    queue: str = ""
    priority_class_name: str = ""
    schedule_timeout_seconds: float = 3600.0
    spread: Mapping[str, Any] | None = None
    groups: Sequence[GangGroup] = ()

    def group_of(self, role: str) -> GangGroup | None:
        """Return the group a role's instances belong to; None without a gang."""
        return next((group for group in self.groups if role in group.roles), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class GangMarks:
    """What a pod carries so that its scheduler knows where it belongs."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    scheduler_name: str = ""


def gang_of(run: RunRef, job: ResolvedJob) -> Gang:
    """Return the gang of a run with the sizes that the job has now."""
    wanted = job.scheduling
    return Gang(
        kind=wanted.gang,
        queue=wanted.queue,
        priority_class_name=wanted.priority_class_name,
        schedule_timeout_seconds=wanted.schedule_timeout_seconds,
        spread=wanted.spread,
        groups=() if wanted.gang == "none" else _groups(run, job),
    )


def _groups(run: RunRef, job: ResolvedJob) -> tuple[GangGroup, ...]:
    startup = job.scheduling.startup
    sizes = gang_sizes(job, startup)
    order = waves(job)
    if startup == "perWave":
        return tuple(
            _group(names.group_name(run, number), job, wave, size=sizes[wave[0]])
            for number, wave in enumerate(order)
        )
    everyone = [name for wave in order for name in wave]
    size = next(iter(sizes.values()), 0)
    reserve = job.instances if startup == "firstWaveReserveAll" else size
    return (_group(names.group_name(run), job, everyone, size=size, reserve=reserve),)


def _group(
    name: str, job: ResolvedJob, roles: Sequence[str], *, size: int, reserve: int | None = None
) -> GangGroup:
    """Return one group; `reserve`: for how many instances, in start order, resources are asked."""
    needs = [
        pod_requests((job.role(role).template.get("spec")) or {})
        for role in roles
        for _ in range(job.role(role).replicas)
    ]
    return GangGroup(
        name=name,
        roles=tuple(roles),
        min_member=max(1, size),
        total=len(needs),
        min_resources=written(summed(needs[: size if reserve is None else reserve])),
    )


def pod_requests(spec: Mapping[str, Any]) -> dict[str, float]:
    """A pod's requests as a scheduler counts them, by resource in base units.

    Init containers run one after the other, before the containers, and beside the sidecars
    (init containers with restartPolicy Always) that were started before them: what counts is the
    larger of the two phases, plus the pod's overhead. Requests of the pod as a whole go before.
    """
    sidecars: dict[str, float] = {}
    starting: dict[str, float] = {}
    for container in spec.get("initContainers") or ():
        own = _requests(container)
        if container.get("restartPolicy") == "Always":
            sidecars = summed([sidecars, own])
            now = sidecars
        else:
            now = summed([sidecars, own])
        starting = _larger(starting, now)
    running = summed([sidecars, *(_requests(each) for each in spec.get("containers") or ())])
    counted = {**_larger(starting, running), **_requests(spec)}
    return summed([counted, _numbers(spec.get("overhead"))])


def _requests(owner: Mapping[str, Any]) -> dict[str, float]:
    """Return requests; a limit without a request is one."""
    resources = owner.get("resources") or {}
    return {**_numbers(resources.get("limits")), **_numbers(resources.get("requests"))}


def _numbers(quantities: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: parse_quantity(value) for name, value in (quantities or {}).items()}


def summed(parts: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return the sum of amounts by resource."""
    names_of_all = dict.fromkeys(name for part in parts for name in part)
    return {name: math.fsum(part.get(name, 0.0) for part in parts) for name in names_of_all}


def _larger(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {
        name: max(one.get(name, 0.0), other.get(name, 0.0))
        for name in dict.fromkeys([*one, *other])
    }


def written(amounts: Mapping[str, float]) -> dict[str, str]:
    """Return amounts as quantities, without what is not asked for."""
    return {name: _quantity(amount) for name, amount in amounts.items() if amount > 0}


def _quantity(amount: float) -> str:
    """Return a quantity, rounded up to thousandths."""
    thousandths = math.ceil(round(amount * 1000, 6))
    if thousandths % 1000:
        return f"{thousandths}m"
    whole = thousandths // 1000
    return next(
        (f"{whole // unit}{name}" for name, unit in _BINARY if whole % unit == 0), f"{whole}"
    )


def marks_of(gang: Gang, role: str) -> GangMarks:
    """Labels and annotations of a role's pods; the same for a replacement as for the first."""
    group = gang.group_of(role)
    if group is None:
        return GangMarks()
    scheduler = _SCHEDULERS.get(gang.kind, "")
    if gang.kind == "volcano":
        return GangMarks(
            annotations=dict.fromkeys(_VOLCANO_GROUP, group.name), scheduler_name=scheduler
        )
    if gang.kind == "coscheduling":
        return GangMarks(labels={names.COSCHEDULING_GROUP: group.name}, scheduler_name=scheduler)
    labels = {names.KUEUE_GROUP: group.name}
    if gang.queue:
        labels[names.KUEUE_QUEUE] = gang.queue
    return GangMarks(labels=labels, annotations={_KUEUE_TOTAL: str(group.total)})


def marks_at_end(pod: PodView) -> dict[str, Any]:
    """Changes to a pod's metadata as its run ends; empty where that has been done.

    Kueue keeps the quota of a group, and with a finalizer its deleted pods, as long as replacements may
    come. A pod that never got a node counts as active for ever: there only we can take the finalizer.
    """
    if names.KUEUE_GROUP not in pod.labels:
        return {}
    marks: dict[str, Any] = {}
    if not _KUEUE_NO_REPLACEMENT.items() <= pod.annotations.items():
        marks["annotations"] = dict(_KUEUE_NO_REPLACEMENT)
    never_placed = pod.deletion is not None and not pod.node
    if never_placed and _KUEUE_FINALIZER in pod.finalizers:
        marks["finalizers"] = [each for each in pod.finalizers if each != _KUEUE_FINALIZER]
    return marks


def pod_group_documents(gang: Gang, run: RunRef, *, record_uid: str) -> list[dict[str, Any]]:
    """Return the PodGroup objects of a run, owned by its record; none for Kueue."""
    api = GROUP_APIS.get(gang.kind)
    if api is None:
        return []
    return [
        {
            "apiVersion": api,
            "kind": "PodGroup",
            "metadata": {
                "name": group.name,
                "namespace": run.namespace,
                "labels": names.run_labels(run),
                "annotations": {names.GENERATION: str(run.generation)},
                "ownerReferences": [names.owner_reference(run, record_uid)],
            },
            "spec": _group_spec(gang, group),
        }
        for group in gang.groups
    ]


def _group_spec(gang: Gang, group: GangGroup) -> dict[str, Any]:
    spec: dict[str, Any] = {"minMember": group.min_member}
    if group.min_resources:
        spec["minResources"] = dict(group.min_resources)
    if gang.kind == "coscheduling":
        spec["scheduleTimeoutSeconds"] = max(1, math.ceil(gang.schedule_timeout_seconds))
        return spec
    if gang.queue:
        spec["queue"] = gang.queue
    if gang.priority_class_name:
        spec["priorityClassName"] = gang.priority_class_name
    return spec

"""Asks the objects that hold pods why they do: rarely, and only while some are held.

What we may not read, or the cluster does not know, is asked for once. A look costs one request for each
kind of holder, however many pods wait for it.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_training.control import reasons
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api, ApiError, Forbidden, NotFound
from airflow_training.runtimes.kubernetes.fitting import never_fits
from airflow_training.runtimes.kubernetes.gangs import KUEUE_QUEUE
from airflow_training.runtimes.kubernetes.group_status import (
    GroupStatus,
    by_events,
    by_pod_group,
    by_workload,
    group_of,
    is_queued,
    place_in_queue,
)
from airflow_training.runtimes.kubernetes.kinds import (
    COSCHEDULING_GROUPS,
    EVENTS,
    KUEUE_WAITING,
    KUEUE_WORKLOADS,
    NODES,
    PODS,
    VOLCANO_GROUPS,
    ResourceKind,
)
from airflow_training.runtimes.kubernetes.node_watch import NodeWatch

__all__ = ["GroupStatuses"]

log = logging.getLogger(__name__)

_WARNINGS = "type=Warning,involvedObject.kind=Pod"
_PULLS = "reason=Pulling,involvedObject.kind=Pod"
_WAITING = "pendingworkloads"

Pod = Mapping[str, Any]


class GroupStatuses:
    """What holds the pods of one namespace."""

    def __init__(self, api: Api, namespace: str, nodes: NodeWatch | None = None) -> None:
        """`nodes`: who may know all of them without a question."""
        self._api = api
        self._namespace = namespace
        self._nodes = nodes
        self._closed: set[ResourceKind] = set()
        """What we may not read, or what is not there."""
        self._specs: dict[str, Mapping[str, Any]] = {}
        """Pod uid -> its whole spec, of those that were looked at."""

    async def of(self, pods: Sequence[Pod]) -> Mapping[str, GroupStatus]:
        """Return pod uid -> why it waits, of those that are known to; raises nothing."""
        found: dict[str, GroupStatus] = {}
        gated = [pod for pod in pods if _is_unplaced(pod) and is_queued(pod) and _is_gated(pod)]
        grouped = [
            pod for pod in pods if _is_unplaced(pod) and group_of(pod) and not is_queued(pod)
        ]
        try:
            if gated:
                found |= await self._by_workload(gated)
            if grouped:
                found |= await self._by_pod_group(grouped)
            refused = [pod for pod in pods if _is_refused(pod)]
            if refused:
                found |= await self._by_nodes(refused)
            silent = [pod for pod in pods if _uid(pod) not in found and not _is_refused(pod)]
            if silent:
                found |= await self._by_events(silent)
        except (RuntimeUnavailable, ApiError) as error:
            log.info("what holds pods in %s cannot be read: %s", self._namespace, error)
        return found

    async def _by_workload(self, pods: Sequence[Pod]) -> Mapping[str, GroupStatus]:
        workloads = {
            each["metadata"]["name"]: each for each in await self._list_first(KUEUE_WORKLOADS)
        }
        found = {}
        waiting = await self._waiting(pods, workloads)
        for pod in pods:
            group = group_of(pod)
            if group in workloads:
                place = place_in_queue(waiting.get(_queue(pod), ()), group)
                found[_uid(pod)] = by_workload(workloads[group], place=place)
        return {uid: each for uid, each in found.items() if each is not None}

    async def _waiting(
        self, pods: Sequence[Pod], workloads: Mapping[str, Any]
    ) -> Mapping[str, Sequence[Any]]:
        """Return queue -> what waits in it, in order; for queues in which a known group waits."""
        queues = {_queue(pod) for pod in pods if group_of(pod) in workloads} - {""}
        found: dict[str, Sequence[Any]] = {}
        for queue in sorted(queues):
            for kind in KUEUE_WAITING:
                if kind not in self._closed:
                    answer = await self._unless_closed(
                        kind, self._api.get(kind, self._namespace, f"{queue}/{_WAITING}")
                    )
                    if answer is not None:
                        found[queue] = answer.get("items") or ()
                        break
        return found

    async def _by_pod_group(self, pods: Sequence[Pod]) -> Mapping[str, GroupStatus]:
        groups: dict[str, Any] = {}
        for kind in (VOLCANO_GROUPS, COSCHEDULING_GROUPS):
            groups |= {each["metadata"]["name"]: each for each in await self._list(kind)}
        found = {_uid(pod): by_pod_group(groups.get(group_of(pod), {})) for pod in pods}
        return {uid: each for uid, each in found.items() if each is not None}

    async def _by_nodes(self, pods: Sequence[Pod]) -> Mapping[str, GroupStatus]:
        """Return which pods no node could ever take; of each role, one pod of each attempt is looked at.

        A later one may ask for more memory than the others (`onOutOfMemory`).
        """
        nodes = None if self._nodes is None else self._nodes.nodes
        if nodes is None:
            nodes = await self._list(NODES, namespace="")
        alike: defaultdict[tuple[str, str, int], list[Pod]] = defaultdict(list)
        for pod in pods if nodes else ():
            ref = names.parse_ref(pod)
            alike[ref.run.uid, ref.role, ref.attempt].append(pod)
        self._specs = {uid: self._specs[uid] for uid in map(_uid, pods) if uid in self._specs}
        found: dict[str, GroupStatus] = {}
        for team in alike.values():
            why = never_fits(await self._spec(team[0]), nodes)
            if why:
                found |= {_uid(pod): GroupStatus(why, reasons.NEVER_FITS) for pod in team}
        return found

    async def _spec(self, pod: Pod) -> Mapping[str, Any]:
        if _uid(pod) not in self._specs:
            whole = await self._api.get(PODS, self._namespace, pod["metadata"]["name"])
            self._specs[_uid(pod)] = whole["spec"]
        return self._specs[_uid(pod)]

    async def _by_events(self, pods: Sequence[Pod]) -> Mapping[str, GroupStatus]:
        events = await self._list(EVENTS, fields=_WARNINGS)
        if not all(map(_is_unplaced, pods)):
            events = [*events, *await self._list(EVENTS, fields=_PULLS)]
        found = {_uid(pod): by_events(events, _uid(pod)) for pod in pods}
        return {uid: each for uid, each in found.items() if each is not None}

    # asking ------------------------------------------------------------------------------------
    async def _list_first(self, kinds: Iterable[ResourceKind]) -> Sequence[Mapping[str, Any]]:
        """Return the objects of the first version that the cluster serves."""
        for kind in kinds:
            if kind not in self._closed:
                found = await self._list(kind)
                if kind not in self._closed:
                    return found
        return ()

    async def _list(
        self, kind: ResourceKind, *, namespace: str | None = None, fields: str = ""
    ) -> Sequence[Mapping[str, Any]]:
        if kind in self._closed:
            return ()
        where = self._namespace if namespace is None else namespace
        answer = await self._unless_closed(kind, self._api.list(kind, where, fields=fields))
        return () if answer is None else answer[0]

    async def _unless_closed(self, kind: ResourceKind, call: Any) -> Any:
        try:
            return await call
        except (Forbidden, NotFound) as error:
            self._closed.add(kind)
            log.info("why pods wait is not read from %s: %s", kind, error)
            return None


def _uid(pod: Pod) -> str:
    return str(pod["metadata"]["uid"])


def _queue(pod: Pod) -> str:
    return str((pod["metadata"].get("labels") or {}).get(KUEUE_QUEUE, ""))


def _is_unplaced(pod: Pod) -> bool:
    return not (pod.get("spec") or {}).get("nodeName")


def _is_gated(pod: Pod) -> bool:
    return bool((pod.get("spec") or {}).get("schedulingGates"))


def _is_refused(pod: Pod) -> bool:
    """Return whether its scheduler has said that there is no place."""
    return _is_unplaced(pod) and any(
        each.get("type") == "PodScheduled" and each.get("reason") == "Unschedulable"
        for each in (pod.get("status") or {}).get("conditions") or ()
    )

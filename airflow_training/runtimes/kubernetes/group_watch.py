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
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import ApiError, Forbidden, NotFound
from airflow_training.runtimes.kubernetes.fitting import never_fits
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
from airflow_training.runtimes.kubernetes.pod_view import PodView

__all__ = ["GroupStatuses"]

log = logging.getLogger(__name__)

_WARNINGS = "type=Warning,involvedObject.kind=Pod"
_PULLS = "reason=Pulling,involvedObject.kind=Pod"
_WAITING = "pendingworkloads"


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

    async def of(self, pods: Sequence[PodView]) -> Mapping[str, GroupStatus]:
        """Return pod uid -> why it waits, of those that are known to; raises nothing."""
        found: dict[str, GroupStatus] = {}
        gated = [pod for pod in pods if not pod.node and is_queued(pod) and pod.gates]
        grouped = [pod for pod in pods if not pod.node and group_of(pod) and not is_queued(pod)]
        try:
            if gated:
                found |= await self._by_workload(gated)
            if grouped:
                found |= await self._by_pod_group(grouped)
            refused = [pod for pod in pods if _is_refused(pod)]
            if refused:
                found |= await self._by_nodes(refused)
            silent = [pod for pod in pods if pod.uid not in found and not _is_refused(pod)]
            if silent:
                found |= await self._by_events(silent)
        except (RuntimeUnavailable, ApiError) as error:
            log.info("what holds pods in %s cannot be read: %s", self._namespace, error)
        return found

    async def _by_workload(self, pods: Sequence[PodView]) -> Mapping[str, GroupStatus]:
        workloads = {
            each["metadata"]["name"]: each for each in await self._list_first(KUEUE_WORKLOADS)
        }
        found = {}
        waiting = await self._waiting(pods, workloads)
        for pod in pods:
            group = group_of(pod)
            if group in workloads:
                place = place_in_queue(waiting.get(_queue(pod), ()), group)
                found[pod.uid] = by_workload(workloads[group], place=place)
        return {uid: each for uid, each in found.items() if each is not None}

    async def _waiting(
        self, pods: Sequence[PodView], workloads: Mapping[str, Any]
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

    async def _by_pod_group(self, pods: Sequence[PodView]) -> Mapping[str, GroupStatus]:
        groups: dict[str, Any] = {}
        for kind in (VOLCANO_GROUPS, COSCHEDULING_GROUPS):
            groups |= {each["metadata"]["name"]: each for each in await self._list(kind)}
        found = {pod.uid: by_pod_group(groups.get(group_of(pod), {})) for pod in pods}
        return {uid: each for uid, each in found.items() if each is not None}

    async def _by_nodes(self, pods: Sequence[PodView]) -> Mapping[str, GroupStatus]:
        """Return which pods no node could ever take; of each role, one pod of each attempt is looked at.

        A later one may ask for more memory than the others (`onOutOfMemory`).
        """
        nodes = None if self._nodes is None else self._nodes.nodes
        if nodes is None:
            nodes = await self._list(NODES, namespace="")
        alike: defaultdict[tuple[str, str, int], list[PodView]] = defaultdict(list)
        for pod in pods if nodes else ():
            alike[pod.run_uid, pod.ref.role, pod.ref.attempt].append(pod)
        self._specs = {p.uid: self._specs[p.uid] for p in pods if p.uid in self._specs}
        found: dict[str, GroupStatus] = {}
        for team in alike.values():
            why = never_fits(await self._spec(team[0]), nodes)
            if why:
                found |= {pod.uid: GroupStatus(why, reasons.NEVER_FITS) for pod in team}
        return found

    async def _spec(self, pod: PodView) -> Mapping[str, Any]:
        if pod.uid not in self._specs:
            whole = await self._api.get(PODS, self._namespace, pod.name)
            self._specs[pod.uid] = whole["spec"]
        return self._specs[pod.uid]

    async def _by_events(self, pods: Sequence[PodView]) -> Mapping[str, GroupStatus]:
        events = await self._list(EVENTS, fields=_WARNINGS)
        if any(pod.node for pod in pods):
            events = [*events, *await self._list(EVENTS, fields=_PULLS)]
        found = {pod.uid: by_events(events, pod.uid) for pod in pods}
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


def _queue(pod: PodView) -> str:
    return pod.labels.get(names.KUEUE_QUEUE, "")


def _is_refused(pod: PodView) -> bool:
    """Return whether its scheduler has said that there is no place."""
    return not pod.node and pod.condition("PodScheduled").reason == "Unschedulable"

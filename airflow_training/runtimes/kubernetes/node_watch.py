"""The nodes of a cluster while somebody has pods there: one list and watch for all who ask."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_training.runtimes.kubernetes import names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.api_errors import (
    Forbidden,
)
from airflow_training.runtimes.kubernetes.kinds import NODES
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.unfit import NodeFact, fact_of, rules_for
from airflow_training.runtimes.kubernetes.watch_loop import ListWatch, detached

__all__ = ["NodeFacts", "NodeWatch"]

log = logging.getLogger(__name__)

_PAUSES = (0.5, 30.0)
"""Seconds before the next try: at first, and at most."""

Node = Mapping[str, Any]
Changed = Callable[[str], None]
"""Called with the name of a node that is another one than before, or gone."""


class NodeWatch:
    """Starts with the first follower and ends with the last. Belongs to one event loop.

    Where we may not look it ends at once, and knows nothing.
    """

    def __init__(self, api: Api) -> None:
        self._api = api
        self._nodes: dict[str, Node] = {}
        self._followers: list[Changed] = []
        self._task: asyncio.Task[None] | None = None
        self._synced = False

    @property
    def nodes(self) -> Sequence[Node] | None:
        """Return all nodes as they were last seen; None: not known."""
        return list(self._nodes.values()) if self._synced else None

    def node(self, name: str) -> Node | None:
        """Return a node as it was last seen."""
        return self._nodes.get(name)

    def follow(self, changed: Changed) -> None:
        """Call `changed` until `leave`; what is known already is told to nobody."""
        self._followers.append(changed)
        if self._task is None:
            self._task = detached(self._watch_for_ever())

    def leave(self, changed: Changed) -> None:
        """Call it no more."""
        self._followers.remove(changed)
        if not self._followers and self._task is not None:
            self._task.cancel()
            self._task = None
            self._nodes.clear()
            self._synced = False

    async def _watch_for_ever(self) -> None:
        watch = ListWatch(
            self._api,
            NODES,
            on_list=self._replace,
            on_change=self._on_change,
            pauses=_PAUSES,
            is_compared=False,
            final=(Forbidden,),
        )
        try:
            await watch.run()
        except Forbidden as error:
            log.info("nodes may not be read, so instances stay wherever they are: %s", error)
            self._synced = False
            for name in list(self._nodes):
                self._put(name, None)  # rights were taken away: what was seen says nothing now

    def _on_change(self, kind: str, node: Node) -> None:
        self._put(node["metadata"]["name"], None if kind == "DELETED" else _trimmed(node))

    async def _replace(self, found: Sequence[Node], _: str) -> None:
        listed = {node["metadata"]["name"]: _trimmed(node) for node in found}
        self._synced = True
        for name in {*self._nodes, *listed}:
            self._put(name, listed.get(name))

    def _put(self, name: str, node: Node | None) -> None:
        if node == self._nodes.get(name):
            return
        if node is None:
            del self._nodes[name]
        else:
            self._nodes[name] = node
        for changed in list(self._followers):
            changed(name)


class NodeFacts:
    """What the nodes say on which pods of one namespace are; the nodes are watched once there is one."""

    def __init__(self, nodes: NodeWatch | None, due: Changed) -> None:
        """`due`: called with the name of a pod whose node has changed. `nodes` None: nobody looks."""
        self._nodes = nodes
        self._due = due
        self._pods: defaultdict[str, set[str]] = defaultdict(set)
        """Node -> names of the pods there that want to know."""
        self._follows = False

    def of(self, pod: PodView) -> NodeFact | None:
        """The fault of a pod's node, by the rules that the pod carries; None without one."""
        rules = rules_for(pod.annotations.get(names.UNFIT_NODES, ""))
        if self._nodes is None or not pod.node or rules is None or pod.is_over:
            return None
        self._pods[pod.node].add(pod.name)
        if not self._follows:
            self._nodes.follow(self._tell)
            self._follows = True
        seen = self._nodes.node(pod.node)
        return None if seen is None else fact_of(seen, rules)

    def forget(self, pod: PodView) -> None:
        """A pod is gone."""
        self._pods[pod.node].discard(pod.name)

    def close(self) -> None:
        """Look at nodes no more."""
        self._pods.clear()
        if self._nodes is not None and self._follows:
            self._nodes.leave(self._tell)
        self._follows = False

    def _tell(self, node: str) -> None:
        for name in sorted(self._pods.get(node, ())):
            self._due(name)


def _trimmed(node: Node) -> Node:
    """Return what anybody here reads of a node; heartbeats make no other one of it."""
    metadata, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    return {
        "metadata": {"name": metadata["name"], "labels": metadata.get("labels") or {}},
        "spec": {key: spec[key] for key in ("taints", "unschedulable") if spec.get(key)},
        "status": {
            "allocatable": status.get("allocatable") or {},
            "conditions": [
                {key: each.get(key, "") for key in ("type", "status", "reason", "message")}
                for each in status.get("conditions") or ()
            ],
        },
    }

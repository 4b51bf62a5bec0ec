"""The emulator answers as a real API server would: where pods go, and what a lost node does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kubernetes.emulated.client import (
    Api,
    phase_is,
    pod,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import until

pytestmark = pytest.mark.emulator


class TestScheduling:
    async def test_says_which_resource_is_missing_on_how_many_nodes(
        self, api: Api, cluster: Cluster
    ) -> None:
        gpu = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}
        await api.core.create_namespaced_pod("default", pod("a", container=gpu))

        def unschedulable() -> Any:
            conditions = cluster.control.get("pods", "a")["status"].get("conditions") or ()
            return next((one for one in conditions if one["reason"] == "Unschedulable"), None)

        found = await until(unschedulable)
        assert (found["type"], found["status"]) == ("PodScheduled", "False")
        assert found["message"] == (
            "0/3 nodes are available: 3 Insufficient nvidia.com/gpu. preemption: 0/3 nodes are "
            "available: 3 Preemption is not helpful for scheduling."
        )
        cluster.control.add_node("gpu-node", gpus=1)
        assert (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"] == "gpu-node"

    async def test_taints_and_cordons_keep_pods_away(self, api: Api, cluster: Cluster) -> None:
        for name in ("node-1", "node-2", "node-3"):
            cluster.control.cordon(name)
        await api.core.create_namespaced_pod("default", pod("a"))
        await until(lambda: cluster.control.get("pods", "a")["status"].get("conditions"))
        assert cluster.control.get("pods", "a")["spec"].get("nodeName") is None
        cluster.control.cordon("node-2", on=False)
        assert (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"] == "node-2"


class TestNodes:
    async def test_a_lost_node_leaves_its_pods_terminating(
        self, cluster: Cluster, api: Api
    ) -> None:
        cluster.control.create(pod("a"))
        node = (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        cluster.control.node_lost(node, evict_after=0.05)
        lost = await until(
            lambda: (
                cluster.control.get("pods", "a")["status"].get("reason") == "NodeLost"
                and cluster.control.get("pods", "a")
            )
        )
        assert lost["metadata"]["deletionTimestamp"]
        ready = {one["type"]: one for one in lost["status"]["conditions"]}["Ready"]
        assert (ready["status"], ready["reason"]) == ("False", "NodeNotReady")
        found = await api.core.read_node(node)
        assert {one.type: one.status for one in found.status.conditions} == {"Ready": "Unknown"}
        assert "node.kubernetes.io/unreachable" in {one.key for one in found.spec.taints}
        cluster.control.node_back(node)
        await until(lambda: cluster.control.get("pods", "a") is None)

    async def test_a_drain_empties_a_node(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a"))
        node = (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        cluster.control.drain(node)
        await until(lambda: cluster.control.get("pods", "a") is None)

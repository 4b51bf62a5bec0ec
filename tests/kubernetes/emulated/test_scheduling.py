"""The emulator answers as a real API server would: where pods go, and what a lost node does."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio import client
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    Api,
    Events,
    phase_is,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster, Node
from tests.waiting import until

pytestmark = pytest.mark.anyio


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
            "available: 3 No preemption victims found for incoming pod."
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

    async def test_gated_pods_wait(self, api: Api, cluster: Cluster) -> None:
        await api.core.create_namespaced_pod("default", pod("a", schedulingGates=[{"name": "x/y"}]))
        conditions = await until(
            lambda: cluster.control.get("pods", "a")["status"].get("conditions")
        )
        assert conditions[0]["reason"] == "SchedulingGated"
        await api.core.patch_namespaced_pod(
            "a", "default", [{"op": "remove", "path": "/spec/schedulingGates"}]
        )
        await until(phase_is(cluster, "a", "Running"))

    @pytest.mark.parametrize("kind", ["volcano", "coscheduling"])
    async def test_a_gang_is_placed_together_or_not_at_all(self, kind: str) -> None:
        group, version = {
            "volcano": ("scheduling.volcano.sh", "v1beta1"),
            "coscheduling": ("scheduling.x-k8s.io", "v1alpha1"),
        }[kind]
        with Cluster(nodes=[Node(name="n", cpu="3")], installed=[kind]) as cluster:
            document = {
                "apiVersion": f"{group}/{version}", "kind": "PodGroup",
                "metadata": {"name": "g"}, "spec": {"minMember": 4},
            }  # fmt: skip
            cluster.control.create(document)
            meta = {
                "annotations": {"scheduling.k8s.io/group-name": "g"},
                "labels": {"scheduling.x-k8s.io/pod-group": "g"},
            }
            one = {"resources": {"requests": {"cpu": "1"}}}
            scheduler = "volcano" if kind == "volcano" else "default-scheduler"
            for n in range(4):
                cluster.control.create(
                    pod(f"p{n}", metadata=meta, container=one, schedulerName=scheduler)
                )

            def unschedulable() -> Any:
                return [
                    c
                    for p in cluster.control.list("pods")
                    for c in p["status"].get("conditions") or ()
                    if c.get("reason") == "Unschedulable" and "Insufficient cpu" in c["message"]
                ]

            await until(lambda: len(unschedulable()) == 4)
            assert all(not p["spec"].get("nodeName") for p in cluster.control.list("pods"))
            if kind == "volcano":
                status = cluster.control.get("podgroups", "g")["status"]
                assert status["conditions"][0]["type"] == "Unschedulable"
                assert status["conditions"][0]["reason"] == "NotEnoughResources"
            cluster.control.add_node("m", cpu="1")
            await until(
                lambda: all(p["status"]["phase"] == "Running" for p in cluster.control.list("pods"))
            )
            await until(lambda: cluster.control.get("podgroups", "g")["status"].get("running") == 4)


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

    async def test_a_fenced_node_gives_its_pods_up(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a"))
        node = (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        cluster.control.node_lost(node, evict_after=0)
        await until(lambda: cluster.control.get("pods", "a")["metadata"].get("deletionTimestamp"))
        cluster.control.fence_node(node)
        assert cluster.control.get("pods", "a") is None

    async def test_evictions_ask_the_disruption_budget(self, cluster: Cluster, api: Api) -> None:
        meta = {"labels": {"app": "x"}}
        cluster.control.create(pod("a", metadata=meta))
        await until(phase_is(cluster, "a", "Running"))
        spec = client.V1PodDisruptionBudgetSpec(
            min_available=1, selector=client.V1LabelSelector(match_labels={"app": "x"})
        )
        budget = client.V1PodDisruptionBudget(metadata=client.V1ObjectMeta(name="b"), spec=spec)
        await api.policy.create_namespaced_pod_disruption_budget("default", budget)
        eviction = client.V1Eviction(metadata=client.V1ObjectMeta(name="a"))
        with pytest.raises(ApiException) as error:
            await api.core.create_namespaced_pod_eviction("a", "default", eviction)
        body = refused(error)
        assert (body["code"], body["details"]["causes"][0]["reason"]) == (429, "DisruptionBudget")
        await api.policy.delete_namespaced_pod_disruption_budget("b", "default")
        async with Events(api, resource_version="0") as events:
            await api.core.create_namespaced_pod_eviction("a", "default", eviction)
            await events.until("DELETED", "a")
        reasons = {c["type"]: c.get("reason") for c in events.objects[-1]["status"]["conditions"]}
        assert reasons["DisruptionTarget"] == "EvictionByEvictionAPI"

    async def test_a_drain_empties_a_node(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a"))
        node = (await until(phase_is(cluster, "a", "Running")))["spec"]["nodeName"]
        assert cluster.control.drain(node) == []
        await until(lambda: cluster.control.get("pods", "a") is None)

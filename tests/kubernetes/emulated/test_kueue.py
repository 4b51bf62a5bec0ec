"""The emulator answers as a real API server would: Kueue's admission."""

from __future__ import annotations

from typing import Any

import pytest
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    connect,
    phase_is,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster
from tests.waiting import until

pytestmark = pytest.mark.anyio


class TestKueue:
    @pytest.fixture
    def kueue(self) -> Any:
        with Cluster(installed=["kueue"]) as cluster:
            flavor = {"name": "f", "resources": [{"name": "cpu", "nominalQuota": "2"}]}
            cluster.control.create(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "ClusterQueue",
                    "metadata": {"name": "all"},
                    "spec": {"resourceGroups": [{"coveredResources": ["cpu"], "flavors": [flavor]}]},
                }
            )  # fmt: skip
            cluster.control.create(
                {
                    "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
                    "metadata": {"name": "team"}, "spec": {"clusterQueue": "all"},
                }
            )  # fmt: skip
            yield cluster

    def member(self, group: str, name: str, command: list[str] | None = None) -> dict[str, Any]:
        return pod(
            name, command, container={"resources": {"requests": {"cpu": "1"}}},
            metadata={
                "labels": {
                    "kueue.x-k8s.io/queue-name": "team", "kueue.x-k8s.io/pod-group-name": group,
                },
                "annotations": {"kueue.x-k8s.io/pod-group-total-count": "2"},
            },
        )  # fmt: skip

    def conditions(self, cluster: Cluster, name: str) -> dict[str, Any]:
        found = cluster.control.get("workloads", name)
        listed = ((found or {}).get("status") or {}).get("conditions") or ()
        return {one["type"]: one for one in listed}

    async def test_a_group_is_admitted_when_it_is_whole_and_its_quota_free(
        self, kueue: Cluster
    ) -> None:
        made = kueue.control.create(self.member("g", "a"))
        assert made["spec"]["schedulingGates"] == [{"name": "kueue.x-k8s.io/admission"}]
        assert made["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
        assert made["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true"
        assert kueue.control.get("workloads", "g") is None
        kueue.control.create(self.member("g", "b"))
        await until(phase_is(kueue, "a", "Running"))
        await until(phase_is(kueue, "b", "Running"))
        assert self.conditions(kueue, "g")["Admitted"]["status"] == "True"

        kueue.control.create(self.member("h", "c"))
        kueue.control.create(self.member("h", "d"))
        refusal = await until(lambda: self.conditions(kueue, "h").get("QuotaReserved"))
        assert refusal["status"] == "False"
        assert "insufficient unused quota for cpu in flavor f, 2 more needed" in refusal["message"]
        for name in ("a", "b"):
            kueue.control.finish(name)
        await until(lambda: self.conditions(kueue, "g").get("Finished"))
        assert "finalizers" not in kueue.control.get("pods", "a")["metadata"]
        await until(phase_is(kueue, "d", "Running"))

    async def test_a_failed_pod_keeps_its_finalizer_until_it_is_replaced(
        self, kueue: Cluster
    ) -> None:
        for name in ("a", "b"):
            kueue.control.create(self.member("g", name))
        await until(phase_is(kueue, "b", "Running"))
        kueue.control.finish("b", exit_code=1)
        await until(lambda: self.conditions(kueue, "g").get("WaitingForReplacementPods"))
        kueue.control.delete("pods", "b")
        kept = kueue.control.get("pods", "b")
        assert kept["metadata"]["finalizers"] == ["kueue.x-k8s.io/managed"]
        kueue.control.create(self.member("g", "b-1"))
        await until(lambda: kueue.control.get("pods", "b") is None)
        await until(phase_is(kueue, "b-1", "Running"))
        assert self.conditions(kueue, "g")["WaitingForReplacementPods"]["status"] == "False"

    async def test_half_named_groups_are_refused(self, kueue: Cluster) -> None:
        connection, api = await connect(kueue)
        half = self.member("g", "a")
        del half["metadata"]["annotations"]
        async with connection:
            with pytest.raises(ApiException) as error:
                await api.core.create_namespaced_pod("default", half)
        assert refused(error)["message"].startswith(
            'admission webhook "vpod.kb.io" denied the request: metadata.annotations'
        )

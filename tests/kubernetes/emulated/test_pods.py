"""The emulator answers as a real API server would: pods that play a script, and jobs of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio.client import ApiException

from tests.kubernetes.emulated.client import (
    Api,
    phase_is,
    pod,
    refused,
)
from tests.kubernetes.emulator import Cluster, Node
from tests.kubernetes.emulator.parts import Parts
from tests.waiting import until
from tests.work import Calls

pytestmark = pytest.mark.emulator


class TestScriptedPods:
    @pytest.mark.parametrize(
        ("command", "phase", "exit_code"),
        [
            (["true"], "Succeeded", 0),
            (["false"], "Failed", 1),
            (["exit", "3"], "Failed", 3),
            (["sh", "-c", "echo hello; sleep 0.01; exit 4"], "Failed", 4),
        ],
    )
    async def test_commands(
        self, cluster: Cluster, command: list[str], phase: str, exit_code: int
    ) -> None:
        cluster.control.create(pod("a", command))
        found = await until(phase_is(cluster, "a", phase))
        ended = found["status"]["containerStatuses"][0]["state"]["terminated"]
        assert ended["exitCode"] == exit_code
        assert ended["reason"] == ("Error" if exit_code else "Completed")

    async def test_running_pods_are_ready_and_have_addresses(self, cluster: Cluster) -> None:
        for name in ("a", "b"):
            cluster.control.create(pod(name))
        found = [await until(phase_is(cluster, name, "Running")) for name in ("a", "b")]
        assert len({one["status"]["podIP"] for one in found}) == 2
        conditions = {one["type"]: one["status"] for one in found[0]["status"]["conditions"]}
        assert (conditions["Ready"], conditions["PodScheduled"]) == ("True", "True")

    async def test_fates(self, cluster: Cluster) -> None:
        for name in ("oom", "evicted", "preempted", "pull"):
            image = {"image": "none.invalid/a:1"} if name == "pull" else {}
            cluster.control.create(pod(name, container=image))
        await until(phase_is(cluster, "preempted", "Running"))
        cluster.control.oom_kill("oom")
        state = cluster.control.get("pods", "oom")["status"]["containerStatuses"][0]["state"]
        assert (state["terminated"]["exitCode"], state["terminated"]["reason"]) == (
            137,
            "OOMKilled",
        )
        cluster.control.evict_by_node("evicted")
        status = cluster.control.get("pods", "evicted")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Evicted")
        targets = [one for one in status["conditions"] if one["type"] == "DisruptionTarget"]
        assert targets[0]["reason"] == "TerminationByKubelet"
        cluster.control.preempt("preempted")
        await until(lambda: cluster.control.get("pods", "preempted") is None)
        waiting = cluster.control.get("pods", "pull")["status"]["containerStatuses"][0]["state"]
        assert waiting["waiting"]["reason"] == "ErrImagePull"

    async def test_restarts_inside_a_pod(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a", restartPolicy="OnFailure"))
        await until(phase_is(cluster, "a", "Running"))
        cluster.control.finish("a", exit_code=9)
        found = cluster.control.get("pods", "a")["status"]
        assert found["phase"] == "Running"
        assert found["containerStatuses"][0]["restartCount"] == 1
        assert found["containerStatuses"][0]["lastState"]["terminated"]["exitCode"] == 9

    async def test_deadlines(self, cluster: Cluster) -> None:
        cluster.control.create(pod("a", activeDeadlineSeconds=1))
        found = await until(phase_is(cluster, "a", "Failed"))
        assert found["status"]["reason"] == "DeadlineExceeded"

    async def test_logs(self, cluster: Cluster, api: Api) -> None:
        cluster.control.create(pod("a"))
        await until(phase_is(cluster, "a", "Running"))
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod_log("a", "default", container="other")
        assert refused(error)["message"] == "container other is not valid for pod a"
        cluster.control.print("a", "one\ntwo\nthree\n")
        assert await api.core.read_namespaced_pod_log("a", "default") == "one\ntwo\nthree\n"
        assert await api.core.read_namespaced_pod_log("a", "default", tail_lines=1) == "three\n"
        assert await api.core.read_namespaced_pod_log("a", "default", limit_bytes=5) == "one\nt"
        stamped = await api.core.read_namespaced_pod_log("a", "default", timestamps=True)
        moment, _, text = stamped.splitlines()[0].partition(" ")
        assert text == "one"
        code, _, _ = await api.raw(
            "GET", f"/api/v1/namespaces/default/pods/a/log?sinceTime={moment}&sinceSeconds=3"
        )
        assert code == 422
        response = await api.core.read_namespaced_pod_log(
            "a", "default", follow=True, _preload_content=False
        )
        async with response:
            assert await response.content.readline() == b"one\n"
            cluster.control.print("a", "four\n")
            cluster.control.finish("a")
            assert (await response.content.read()).endswith(b"four\n")

    async def test_waiting_pods_have_no_log(self, cluster: Cluster, api: Api) -> None:
        cluster.control.behave("default/a", creating=True)
        cluster.control.create(pod("a"))
        await until(lambda: cluster.control.get("pods", "a")["status"].get("containerStatuses"))
        with pytest.raises(ApiException) as error:
            await api.core.read_namespaced_pod_log("a", "default")
        assert refused(error)["message"] == (
            'container "main" in pod "a" is waiting to start: ContainerCreating'
        )

    async def test_a_pod_among_a_thousand_takes_no_more_than_among_a_hundred(
        self, tmp_path: Path
    ) -> None:
        few, many = [await self.work(tmp_path, pods=each) for each in (100, 1000)]
        assert many < 11 * few

    async def work(self, folder: Path, *, pods: int) -> int:
        """Return how many calls the emulator makes until all pods run."""
        parts = Parts(
            folder=folder, kubelet="scripted", installed=(), port=0, bookmark_seconds=60.0
        )
        await parts.start([Node(name="n", pods=2000, cpu="2000")])

        def last_runs() -> bool:
            phase: str = parts.control.get("pods", f"p{pods - 1}")["status"]["phase"]
            return phase == "Running"

        with Calls() as calls:
            for n in range(pods):
                parts.control.create(pod(f"p{n}"))
            while not last_runs():  # noqa: ASYNC110 - its tasks are of this loop
                await asyncio.sleep(0)
        await parts.stop()
        return calls.count


class TestJobs:
    def job(self, **spec: Any) -> dict[str, Any]:
        return {
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"template": {"spec": pod("x", spec.pop("command"))["spec"]}, **spec},
        }  # fmt: skip

    def conditions(self, cluster: Cluster) -> dict[str, Any]:
        status = cluster.control.get("jobs", "j")["status"]
        return {one["type"]: one.get("reason") for one in status.get("conditions") or ()}

    async def test_indexed_jobs_complete(self, cluster: Cluster) -> None:
        cluster.control.create(
            self.job(command=["true"], completions=3, parallelism=2, completionMode="Indexed")
        )
        await until(lambda: "Complete" in self.conditions(cluster))
        status = cluster.control.get("jobs", "j")["status"]
        assert (status["succeeded"], status["completedIndexes"]) == (3, "0,1,2")
        assert {p["spec"]["hostname"] for p in cluster.control.list("pods")} == {
            "j-0",
            "j-1",
            "j-2",
        }

    async def test_too_many_failures_end_a_job(self, cluster: Cluster) -> None:
        cluster.control.create(self.job(command=["false"], backoffLimit=1))
        await until(lambda: "Failed" in self.conditions(cluster))
        assert self.conditions(cluster)["Failed"] == "BackoffLimitExceeded"
        assert len(cluster.control.list("pods")) == 2

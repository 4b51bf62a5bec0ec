"""What is left of a quota is looked at before the first pod of a job that needs all of its pods."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_training.admission.launch import check_runtime
from airflow_training.documents.resolved import RunKey
from airflow_training.runtimes.kubernetes.facts import RunFacts, facts_of
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pods import PodOptions
from airflow_training.runtimes.kubernetes.quotas import (
    exhausted_quota,
    has_more_room,
    needs_together,
)
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from tests.kubernetes.conftest import CONTROLLER, Stage, connect_to, resolved
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.samples import RUN, a_container, a_job, a_role
from tests.kubernetes.test_rights import quota
from tests.waiting import PATIENCE, until

GPUS = a_container(resources={"limits": {"nvidia.com/gpu": 2}, "requests": {"cpu": "500m"}})


def a_group(gang: str = "none", **keys: Any) -> Any:
    return a_job(
        a_role("worker", 3, main=GPUS, env={"WORLD_SIZE": "3"}, rank_offset=0), gang=gang, **keys
    )


@pytest.mark.parametrize(
    ("job", "needs"),
    [
        pytest.param(
            a_group(), {"nvidia.com/gpu": "6", "cpu": "1500m", "pods": "3"}, id="one-group"
        ),
        pytest.param(a_group("kueue"), {}, id="a-queue-sees-to-it"),
        pytest.param(a_group(elastic=True), {}, id="elastic"),
        pytest.param(a_job(a_role("worker", 3, main=GPUS)), {}, id="each-alone"),
    ],
)
def test_what_all_pods_need_together(job, needs):
    assert needs_together(job) == needs
    facts = facts_of(RUN, job)
    assert RunFacts.from_json(facts.to_json()) == facts


def left(hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"used": used}}


@pytest.mark.parametrize(
    ("found", "told"),
    [
        pytest.param(left({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "2"}), "", id="just-enough"),
        pytest.param(
            left({"requests.nvidia.com/gpu": "8"}, {"requests.nvidia.com/gpu": "3"}),
            "exceeded quota: q, requested by all pods together: requests.nvidia.com/gpu=6,"
            " used: requests.nvidia.com/gpu=3, limited: requests.nvidia.com/gpu=8", id="others-use-it",
        ),
        pytest.param(left({"count/pods": "3"}, {"count/pods": "1"}), "exceeded quota: q", id="pods"),
        pytest.param(left({"limits.cpu": "1"}, {"limits.cpu": "1"}), "", id="of-what-it-does-not-ask"),
        pytest.param(
            left({"persistentvolumeclaims": "2"}, {"persistentvolumeclaims": "3"}), "",
            id="too-much-of-what-it-does-not-ask",
        ),
        pytest.param(left({"pods": "1"}, {}, scopes=["BestEffort"]), "", id="may-not-be-for-these-pods"),
    ],
)  # fmt: skip
def test_what_is_left_is_compared_not_the_limit(found, told):
    said = exhausted_quota([found], needs_together(a_group()))
    assert said.startswith(told)
    assert bool(said) == bool(told)


FULL = left({"pods": "4", "requests.cpu": "8"}, {"pods": "4", "requests.cpu": "8"})


@pytest.mark.parametrize(
    ("after", "more"),
    [
        pytest.param(FULL, False, id="as-before"),
        pytest.param(None, True, id="gone"),
        pytest.param(left({"pods": "4", "requests.cpu": "8"}, {"pods": "3", "requests.cpu": "8"}), True, id="less-used"),
        pytest.param(left({"pods": "4", "requests.cpu": "8"}, {"pods": "4", "requests.cpu": "7500m"}), True, id="less-cpu-used"),
        pytest.param(left({"pods": "5", "requests.cpu": "8"}, {"pods": "4", "requests.cpu": "8"}), True, id="larger"),
        pytest.param(left({"pods": "4"}, {"pods": "4"}), True, id="of-less"),
        pytest.param(left({"pods": "3", "requests.cpu": "8"}, {"pods": "4", "requests.cpu": "8"}), False, id="smaller"),
        pytest.param(left({"pods": "4", "requests.cpu": "8", "services": "1"}, {"pods": "5", "requests.cpu": "9"}), False, id="of-more"),
        pytest.param({**FULL, "status": {**FULL["status"], "hard": {"pods": "5"}}}, False, id="counted-first"),
    ],
)  # fmt: skip
def test_when_a_quota_has_more_room(after, more):
    assert has_more_room(FULL, after) is more


def group(name: str) -> Any:
    """Return a job of two instances, none of which is of use alone."""
    return resolved(
        {"name": "worker", "replicas": 2}, name=name, restart={"scope": "Job"},
        resources={"requests": {"cpu": "1"}},
    )  # fmt: skip


@pytest.mark.e2e
async def test_a_job_holds_nothing_while_its_quota_has_too_little_for_all(stage: Stage):
    stage.cluster.control.create(quota(requests_cpu="3"))
    first = stage.launch(group("first"))
    async with stage.driving(first) as driven:
        await stage.until_running(first)
        second = stage.launch(group("second"), run_id="two")
        runtime = stage.runtime()
        async with stage.driving(second, runtime=runtime) as task:
            await until(lambda: runtime.api.requests["list resourcequotas"] >= 2)
            assert len(stage.pods()) == 2, "one would fit, and nobody could use it"
            stage.store.add_request(first, "stop", reason="enough")
            assert await asyncio.wait_for(driven, PATIENCE) == "Stopped"
            await stage.until_running(second)
            stage.store.add_request(second, "stop", reason="enough")
            assert await asyncio.wait_for(task, PATIENCE) == "Stopped"


@pytest.mark.e2e
async def test_a_job_that_needs_all_of_its_pods_is_told_of_the_queues_that_there_are(tmp_path):
    queue = {
        "apiVersion": "kueue.x-k8s.io/v1beta1", "kind": "LocalQueue",
        "metadata": {"name": "research"}, "spec": {"clusterQueue": "all"},
    }  # fmt: skip
    with Cluster(installed=["kueue"]) as cluster:
        archive = LogArchive(str(tmp_path), tail_bytes=0)
        runtime = KubernetesRuntime(
            connect=connect_to(cluster), archive=archive, options=PodOptions()
        )

        async def warned(job: Any) -> list[str]:
            key = RunKey(source="cli", run_id="one")
            return [
                each.hint
                for each in await check_runtime(
                    job, key=key, controller=CONTROLLER, runtime=runtime
                )
            ]

        assert await warned(group("first")) == []
        cluster.control.create(queue)
        assert await warned(group("first")) == ["schedulingPolicy: {gang: kueue, queue: research}"]
        assert await warned(resolved({"name": "worker", "replicas": 2})) == []

"""Places that are held for instances: what a spare asks for, and who gets its place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_training.documents.resolved import ResolvedSpot
from airflow_training.runtimes.kubernetes.facts import facts_of
from airflow_training.runtimes.kubernetes.gangs import marks_of
from airflow_training.runtimes.kubernetes.spares import spare_document
from airflow_training.supervise.instance_logs import RunLogs
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.emulator.nodes import Node
from tests.kubernetes.samples import RUN, a_container, a_job, a_pod, a_role, an_instance
from tests.waiting import PATIENCE, until

SPARE = "airflow-training/spare"


# what it is ------------------------------------------------------------------------------------------
def a_spare(job: Any) -> dict[str, Any]:
    marks = marks_of(facts_of(RUN, job).gang, "worker")
    return spare_document(a_pod(job), an_instance(job).ref, marks)


def test_a_spare_asks_for_the_place_of_an_instance_and_does_nothing():
    spot = ResolvedSpot(from_index=0, label="karpenter.sh/capacity-type", value="spot")
    gpus = {"limits": {"nvidia.com/gpu": "8"}}
    sidecar = {"name": "proxy", "image": "proxy:1", "resources": {"limits": {"cpu": "1"}}}
    job = a_job(
        a_role(
            spot=spot,
            main=a_container(resources=gpus, env=[{"name": "A", "value": "1"}]),
            metadata={"labels": {"team": "vision"}},
            spec={
                "nodeSelector": {"gpu": "h100"},
                "priorityClassName": "high",
                "initContainers": [{"name": "once", "image": "x"}, {**sidecar, "restartPolicy": "Always"}],
                "volumes": [{"name": "data", "emptyDir": {}}],
            },
        )
    )  # fmt: skip
    pod, spare = a_pod(job), a_spare(job)
    for key in ("nodeSelector", "priorityClassName", "affinity", "tolerations"):
        assert spare["spec"][key] == pod["spec"][key]
    idle = {"command": ["sleep", "infinity"]}
    assert spare["spec"]["containers"] == [
        {"name": "main", "image": "train:1", "resources": gpus, **idle},
        {**sidecar, **idle},
    ]
    assert not {"initContainers", "volumes", "hostname", "subdomain"} & set(spare["spec"])
    assert spare["spec"]["restartPolicy"] == "Always"
    assert spare["metadata"]["labels"]["team"] == "vision"


def test_a_spare_is_no_instance_and_in_no_gang():
    for gang in ("kueue", "coscheduling", "volcano"):
        spare = a_spare(a_job(a_role(), gang=gang, scheduling={"queue": "research"}))
        labels = spare["metadata"]["labels"]
        assert labels[SPARE] == "worker"
        assert "airflow-training/role" not in labels
        marks = [*labels, *spare["metadata"]["annotations"]]
        assert not [each for each in marks if "group" in each or "kueue" in each]
        assert "schedulerName" not in spare["spec"]
    first, second = (a_spare(a_job())["metadata"]["name"] for _ in range(2))
    assert first != second


# who gets its place ------------------------------------------------------------------------------------
@pytest.fixture
def scripted() -> Iterator[Cluster]:
    with Cluster(nodes=[Node(name=f"n{number}", cpu="4") for number in range(3)]) as cluster:
        yield cluster


def team(**fields: Any) -> Any:
    role = {"name": "worker", "replicas": 2, "warmSpares": 1, "resources": {"limits": {"cpu": "3"}}}
    return resolved({**role, **fields})


def spares(stage: Stage) -> list[Any]:
    pods = stage.cluster.control.list("pods", namespace="default")
    return [each for each in pods if SPARE in each["metadata"]["labels"]]


def places(stage: Stage) -> list[str]:
    return [node for each in spares(stage) if (node := each["spec"].get("nodeName"))]


def node_of(stage: Stage, uid: str, index: int) -> str:
    return stage.entry(uid, index=index).node


def told(stage: Stage, uid: str, reason: str) -> list[str]:
    return [e.event.message for e in stage.store.events(uid) if e.event.reason == reason]


async def test_an_instance_whose_node_is_gone_gets_the_place_of_a_spare(stage: Stage):
    uid = stage.launch(team())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        await until(lambda: told(stage, uid, "SparesHeld"))
        (held,) = places(stage)
        assert told(stage, uid, "SparesHeld") == [f"1 of 1 hold a place: {held}"]
        stage.cluster.control.drain(node_of(stage, uid, 1))
        await until(lambda: stage.entry(uid, index=1).attempt == 1)
        await stage.until_running(uid)
        assert node_of(stage, uid, 1) == held
        assert told(stage, uid, "SpareYielded") == [f"gives its place on {held} up to worker-1"]
        # the next one waits for room, and takes it once it is there
        await until(lambda: spares(stage) and not places(stage))
        stage.cluster.control.add_node("n9", cpu="4")
        await until(lambda: places(stage) == ["n9"])
        await until(lambda: len(told(stage, uid, "SparesHeld")) == 2)
        for index in range(2):
            stage.cluster.control.finish(stage.name(f"worker-{index}"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    assert spares(stage) == []
    used = [each for each in stage.store.usage.of_run(uid, spares=True) if each.key.index < 0]
    assert [(each.key.role, each.resources["cpu"]) for each in used] == [("worker", "3")] * 2
    assert all(each.finished_at is not None for each in used)
    record = stage.store.find_run("one")
    logs = RunLogs(store=stage.store, record=record, runtime=stage.runtime())
    assert [str(each.key) for each in logs.instances()] == ["worker-0", "worker-1"]
    assert [str(each.ref.key) for each in logs.newest()] == ["worker-0", "worker-1"]


async def test_a_run_that_is_paused_gives_its_spares_back(stage: Stage):
    uid = stage.launch(team())
    async with stage.driving(uid):
        await stage.until_running(uid)
        await until(lambda: places(stage))
        stage.store.add_request(uid, "pause")
        await until(lambda: not spares(stage) and stage.store.ledger(uid).job.state == "Paused")
        stage.store.add_request(uid, "resume")
        await stage.until_running(uid)
        await until(lambda: places(stage))


async def test_a_spare_that_is_lost_is_made_again(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("airflow_training.supervise.followers.spares._LOOK_SECONDS", (0.05, 0.1))
    uid = stage.launch(team())
    async with stage.driving(uid):
        await stage.until_running(uid)
        await until(lambda: places(stage))
        (lost,) = spares(stage)
        stage.cluster.control.evict_by_node(lost["metadata"]["name"])

        def found() -> list[str]:
            pods = [each for each in spares(stage) if each["spec"].get("nodeName")]
            return [each["metadata"]["uid"] for each in pods]

        await until(lambda: set(found()) - {lost["metadata"]["uid"]})


async def test_each_spare_is_counted_once_however_many_come_and_go(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_training.supervise.followers.spares._LOOK_SECONDS", (0.05, 0.1))
    stage.cluster.control.add_node("n9", cpu="4")
    uid = stage.launch(team(warmSpares=2))
    async with stage.driving(uid):
        await stage.until_running(uid)
        await until(lambda: len(places(stage)) == 2)

        def used() -> list[bool]:
            rows = stage.store.usage.of_run(uid, spares=True)
            return sorted(each.finished_at is None for each in rows if each.key.index < 0)

        await until(lambda: used() == [True, True])
        stage.cluster.control.evict_by_node(spares(stage)[0]["metadata"]["name"])
        await until(lambda: used() == [False, True, True])


async def test_a_spare_takes_nothing_that_a_restarting_instance_has_of_the_quota(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_training.supervise.followers.spares._LOOK_SECONDS", (0.05, 0.1))
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}  # fmt: skip
    stage.cluster.control.create(quota)
    uid = stage.launch(team())
    async with stage.driving(uid):
        await stage.until_running(uid)
        await until(lambda: told(stage, uid, "SparesRefused"))
        stage.cluster.control.finish(stage.name("worker-1"), exit_code=1)
        await until(lambda: stage.entry(uid, index=1).attempt == 1)
        await stage.until_running(uid)
        assert spares(stage) == []
        assert len(told(stage, uid, "SparesRefused")) == 1, "in the same words: once"


async def test_a_quota_that_is_used_up_is_told_and_the_run_goes_on(stage: Stage):
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "few"}, "spec": {"hard": {"pods": "2"}}}  # fmt: skip
    stage.cluster.control.create(quota)
    uid = stage.launch(team())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        await until(lambda: told(stage, uid, "SparesRefused"))
        assert "quota" in told(stage, uid, "SparesRefused")[0]
        for index in range(2):
            stage.cluster.control.finish(stage.name(f"worker-{index}"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"

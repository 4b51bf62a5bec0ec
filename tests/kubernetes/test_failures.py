"""What happens when something around the training dies: each row of the table in docs/kubernetes.md."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from airflow_training.control import outages, reasons
from airflow_training.control.model import InstanceEntry
from airflow_training.runtimes.kubernetes import observing
from airflow_training.supervise.status import run_status
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.emulator import Control
from tests.rounds import Rounds
from tests.waiting import PATIENCE, until


def restarts(stage: Stage, uid: str) -> list[str]:
    """Return the class of every restart so far."""
    return [each.failure_class for each in stage.store.ledger(uid).job.restarts]


def node_of(stage: Stage, instance: str) -> str:
    return str(stage.pods()[instance]["spec"]["nodeName"])


def delete(control: Control, name: str) -> None:
    control.delete("pods", name, grace_seconds=1)


def drain(control: Control, name: str) -> None:
    control.drain(control.get("pods", name)["spec"]["nodeName"])


@pytest.mark.parametrize(
    ("happens", "charged_to"),
    [
        pytest.param(delete, "infrastructure", id="pod-deleted"),
        pytest.param(lambda c, name: c.evict_by_node(name), "resource", id="node-pressure"),
        pytest.param(lambda c, name: c.evict_by_api(name), "preemption", id="evicted"),
        pytest.param(lambda c, name: c.preempt(name), "preemption", id="preempted"),
        pytest.param(drain, "preemption", id="node-drained"),
        pytest.param(lambda c, name: c.oom_kill(name), "resource", id="out-of-memory"),
        pytest.param(lambda c, name: c.finish(name, exit_code=3), "user", id="exit-code"),
    ],
)
async def test_an_instance_that_is_taken_away_is_replaced_and_charged_to_its_cause(
    stage: Stage, happens: Callable[[Control, str], None], charged_to: str
):
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        kept, lost = stage.uid("worker-0"), stage.uid("worker-1")
        happens(stage.cluster.control, stage.name("worker-1"))
        await until(lambda: stage.entry(uid, index=1).attempt == 1)
        await stage.until_running(uid)
        assert stage.uid("worker-0") == kept
        assert stage.uid("worker-1") != lost
        assert restarts(stage, uid) == [charged_to]
        for instance in ("worker-0", "worker-1"):
            stage.cluster.control.finish(stage.name(instance))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"


async def test_the_log_of_a_deleted_pod_is_in_the_archive(stage: Stage):
    uid = stage.launch(resolved())
    runtime = stage.runtime()
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        stage.cluster.control.print(stage.name("worker-0"), "step 7\n")
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    assert not stage.pods()
    archived = list((stage.folder / "logs").rglob("*.log"))
    assert [path.read_text() for path in archived] == ["step 7\n"]


# nodes -------------------------------------------------------------------------------------------
async def test_an_instance_on_a_lost_node_is_replaced_only_when_it_is_surely_gone(stage: Stage):
    job = resolved({"name": "worker", "replicas": 2})
    uid = stage.launch(_soon_unknown(job))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        node, lost = node_of(stage, "worker-1"), stage.uid("worker-1")
        control.node_lost(node, evict_after=0.1)
        await until(lambda: stage.entry(uid, index=1).reason == "WaitingForOldInstance")
        entry = stage.entry(uid, index=1)
        assert node in entry.message
        assert restarts(stage, uid) == ["infrastructure"]
        assert stage.uid("worker-1") == lost, "the old one may still run: there is no second one"
        control.delete_node(node)
        await stage.until_running(uid)
        assert stage.uid("worker-1") != lost


@pytest.mark.parametrize("scope", ["Instance", "Job"])
async def test_a_lost_node_is_charged_once_whatever_ran_there(stage: Stage, scope: str):
    control = stage.cluster.control
    control.add_node("all-here")
    for each in control.list("nodes"):
        if each["metadata"]["name"] != "all-here":
            control.cordon(each["metadata"]["name"])
    restart = {"scope": scope, "maxRestarts": 1, "backoff": {"initialSeconds": 0.05}}
    roles = ({"name": "worker", "replicas": 2}, {"name": "ps", "replicas": 2})
    uid = stage.launch(_soon_unknown(resolved(*roles, restart=restart)))
    async with stage.driving(uid):
        await stage.until_running(uid)
        control.node_lost("all-here", evict_after=600.0)
        await until(lambda: {each.attempt for each in entries(stage, uid)} == {1})
        assert restarts(stage, uid) == ["infrastructure"]
        assert sum(each.restarts for each in entries(stage, uid)) == 1
        told = [each.event for each in stage.store.events(uid)]
        free = [each.message for each in told if each.reason == "FailureIsConsequence"]
        if scope == "Instance":
            assert (
                sum("node all-here is lost, which was charged once" in each for each in free) == 3
            )
        control.delete_node("all-here")
        control.add_node("another")
        await stage.until_running(uid)
        assert restarts(stage, uid) == ["infrastructure"]


async def test_what_is_unknown_is_not_given_up_while_the_api_server_is_away(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """Its clock begins with the first answer, not with what was said before the outage."""
    monkeypatch.setattr(outages, "BRIEF_SECONDS", 0.0)
    stage.patience_seconds = 0.5
    uid = stage.launch(dataclasses.replace(resolved(), unknown_seconds=10.0))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        node, before = node_of(stage, "worker-0"), stage.uid("worker-0")
        control.node_lost(node, evict_after=600.0)
        await until(lambda: stage.entry(uid).state == "unknown")
        control.server_away()
        await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
        control.server_back()
        await until(lambda: stage.store.ledger(uid).job.condition == "Running")
        answered_at = stage.store.ledger(uid).job.answers_since
        assert deadline_of(stage, uid) == pytest.approx(answered_at + 10.0, abs=1.0)
        control.node_back(node)
        await stage.until_running(uid)
        assert (stage.uid("worker-0"), restarts(stage, uid)) == (before, [])


def deadline_of(stage: Stage, uid: str) -> float | None:
    return stage.entry(uid).phase.deadline_at


def entries(stage: Stage, uid: str) -> Collection[InstanceEntry]:
    return stage.store.ledger(uid).instances.values()


async def test_a_node_that_comes_back_in_time_costs_nothing(stage: Stage):
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        node, before = node_of(stage, "worker-1"), stage.uid("worker-1")
        control.node_lost(node, evict_after=600.0)
        await until(lambda: stage.entry(uid, index=1).state == "unknown")
        control.node_back(node)
        await stage.until_running(uid)
        assert stage.uid("worker-1") == before
        assert restarts(stage, uid) == []


async def test_a_node_that_ends_nothing_is_named(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(observing, "OVERDUE_SECONDS", 0.5)
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        node, name = node_of(stage, "worker-1"), stage.name("worker-1")
        # its kubelet hangs: nobody says that the pod has ended, nor that the node is lost
        stage.cluster.parts.kubelet.lost.add(node)
        control.delete("pods", name, grace_seconds=1)
        await until(lambda: stage.entry(uid, index=1).reason == "Overdue")
        assert node in stage.entry(uid, index=1).message


async def test_a_node_that_is_not_fit_for_it_is_left(stage: Stage):
    """Its agent looked before the start, and said so in its last words."""
    uid = stage.launch(resolved(checkpoint={"uri": "s3://b/c"}))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        unfit = node_of(stage, "worker-0")
        said = {"reason": "EnvironmentNotReady", "message": "devices: 7 of 8 are there"}
        words = json.dumps({"airflow-training": said})
        stage.cluster.control.finish(stage.name("worker-0"), exit_code=1, message=words)
        await until(lambda: stage.entry(uid).attempt == 1)
        await stage.until_running(uid)
        assert node_of(stage, "worker-0") != unfit
        assert stage.entry(uid).avoid_nodes == (unfit,)
        assert restarts(stage, uid) == ["infrastructure"]
        [told] = [each for each in stage.events if each.reason == "InstanceRestarted"]
        assert "EnvironmentNotReady" in told.message
        assert told.data["recovery"] == "node"
        stage.cluster.control.finish(stage.name("worker-0"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"


# the API server ----------------------------------------------------------------------------------
async def test_an_api_server_that_is_away_for_long_is_waited_for(stage: Stage):
    stage.patience_seconds = 1.0
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        before = {stage.uid(each) for each in stage.pods()}
        control.server_away()
        await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
        assert stage.store.ledger(uid).job.state == "Running"
        control.server_back()
        await until(lambda: stage.store.ledger(uid).job.condition == "Running")
        assert {stage.uid(each) for each in stage.pods()} == before
        assert restarts(stage, uid) == []
        for each in stage.pods():
            control.finish(stage.name(each))
        assert await asyncio.wait_for(task, 30) == "Succeeded"


async def test_an_api_server_that_is_away_is_told_with_since_when_and_why_and_so_is_its_return(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outages, "BRIEF_SECONDS", 0.5)
    stage.patience_seconds = 0.5
    uid = stage.launch(resolved())
    control = stage.cluster.control

    def told(reason: str) -> list[str]:
        return [each.message for each in stage.events if each.reason == reason]

    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        control.server_away()
        await until(lambda: told(reasons.RUNTIME_UNREACHABLE))
        document = run_status(stage.store, uid)
        assert document["reason"] == reasons.RUNTIME_UNREACHABLE
        assert "the cluster does not answer" in document["unreachable"]["why"]
        assert document["unreachable"]["since"] in document["message"]
        control.server_back()
        await until(lambda: told(reasons.RUNTIME_ANSWERS))
        await until(lambda: run_status(stage.store, uid)["unreachable"] is None)
        control.finish(stage.name("worker-0"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    # with so little patience a busy machine is an outage too: each has its end
    assert len(told(reasons.RUNTIME_UNREACHABLE)) == len(told(reasons.RUNTIME_ANSWERS))


async def test_who_never_reached_the_api_server_tells_it_too(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(outages, "BRIEF_SECONDS", 0.5)
    uid = stage.launch(resolved())
    stage.cluster.control.server_away()
    async with stage.driving(uid):
        await until(lambda: run_status(stage.store, uid)["reason"] == "RuntimeUnreachable")
        stage.cluster.control.server_back()
        await stage.until_running(uid)
    assert "RuntimeAnswers" in [each.reason for each in stage.events]


async def test_what_ends_while_the_api_server_is_away_is_seen_afterwards(stage: Stage):
    stage.patience_seconds = 1.0
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        names = [stage.name(each) for each in stage.pods()]
        control.server_away()
        await until(lambda: stage.store.ledger(uid).job.condition == "RuntimeUnknown")
        for name in names:
            control.finish(name)
        control.server_back()
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
        assert restarts(stage, uid) == []


async def test_rights_that_are_taken_away_are_waited_for(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    control = stage.cluster.control
    control.add_user("trainer", token="trainer")
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    control.allow("trainer", everything)
    uid = stage.launch(resolved())
    runtime = stage.runtime(token="trainer")
    tries = Rounds(monkeypatch, runtime, "delete")
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        control.revoke("trainer")
        stage.store.add_request(uid, "stop", reason="enough")
        await until(lambda: stage.store.ledger(uid).job.condition == "StopRequested")
        await until(tries.more(1))
        assert not task.done()
        assert stage.pods()["worker-0"]["status"]["phase"] == "Running"
        control.allow("trainer", everything)
        assert await asyncio.wait_for(task, 30) == "Stopped"
    assert "Running" not in {each["status"]["phase"] for each in stage.pods().values()}


# objects that others delete ----------------------------------------------------------------------
async def test_a_deleted_service_is_made_again_with_the_next_instance(stage: Stage):
    roles = ({"name": "master"}, {"name": "worker"})
    uid = stage.launch(resolved(*roles))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        services = [
            each["metadata"]["name"] for each in control.list("services", namespace="default")
        ]
        ours = [name for name in services if name.startswith("digits-")]
        assert len(ours) == 2
        for name in ours:
            control.delete("services", name)
        control.finish(stage.name("worker-0"), exit_code=3)
        await until(lambda: stage.entry(uid).attempt == 1)
        await stage.until_running(uid)
        assert all(control.get("services", name) for name in ours)


async def test_a_deleted_service_is_made_again_by_the_next_holder(stage: Stage):
    uid = stage.launch(resolved())
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        before = stage.uid("worker-0")
        (name,) = _services(control)
    control.delete("services", name)
    async with stage.driving(uid):
        await until(lambda: _services(control) == [name])
        await stage.until_running(uid)
    assert stage.uid("worker-0") == before


async def test_a_run_whose_record_was_deleted_begins_again(stage: Stage):
    """Everything of the run is collected with its record."""
    uid = stage.launch(resolved())
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        (record,) = [
            each["metadata"]["name"]
            for each in control.list("configmaps", namespace="default")
            if "run.json" in (each.get("data") or {})
        ]
        control.delete("configmaps", record)
        await until(lambda: stage.entry(uid).attempt == 1)
        await stage.until_running(uid)
        assert control.get("configmaps", record) is not None


async def test_a_namespace_that_is_being_deleted_ends_the_run_with_its_name(stage: Stage):
    control = stage.cluster.control
    control.create_namespace("team")
    uid = stage.launch(resolved({"name": "worker", "backoffLimit": 1}, namespace="team"))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        control.delete("namespaces", "team")
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert "team" in job.message + str(job.root_cause) + stage.entry(uid).message


def _services(control: Control) -> list[str]:
    found = control.list("services", namespace="default")
    return [n for each in found if (n := each["metadata"]["name"]).startswith("digits-")]


def _soon_unknown(job: Any) -> Any:
    return dataclasses.replace(job, unknown_seconds=0.5)


# containers beside the training one --------------------------------------------------------------
async def test_an_ended_instance_gives_its_place_back_while_others_go_on(stage: Stage):
    proxy = {"name": "proxy", "image": "busybox"}
    template = {"spec": {"containers": [{"name": "main", "image": "busybox"}, proxy]}}
    uid = stage.launch(resolved({"name": "worker", "replicas": 2, "template": template}))
    control = stage.cluster.control
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        control.print(stage.name("worker-0"), "done\n", container="main")
        control.finish(stage.name("worker-0"), container="main")
        await until(lambda: set(stage.pods()) == {"worker-1"})
        assert stage.states(uid) == {"worker-0": "succeeded", "worker-1": "running"}
        archived = stage.folder / "logs" / uid / "worker-0" / "0.0.0.log"
        assert archived.read_text() == "done\n"
        control.finish(stage.name("worker-1"), container="proxy", exit_code=3)
        await until(lambda: stage.entry(uid, index=1).reason == "HelperDied")
        control.finish(stage.name("worker-1"), container="main")
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    assert [each.index for each in stage.events if each.reason == "HelperDied"] == [1]
    assert restarts(stage, uid) == []

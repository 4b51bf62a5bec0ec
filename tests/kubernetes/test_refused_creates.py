"""What a cluster will never take ends a run at once, what it takes later waits: on the emulated API."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_training.runtimes.kubernetes import observing, refusals
from airflow_training.supervise import refusals as waiting_creates
from airflow_training.supervise.status import run_status
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.emulator import Cluster
from tests.kubernetes.test_command_line import HELLO, Shell
from tests.waiting import PATIENCE, until

IMAGE = "registry.example/team/trian:7"
TOO_MANY = "429 Too Many Requests - Server message: toomanyrequests: You have reached your limit"


async def ended(stage: Stage, uid: str) -> Any:
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    return stage.store.ledger(uid).job


async def test_an_image_with_a_typing_error_ends_the_run_at_its_first_attempt(stage: Stage):
    stage.cluster.control.refuse_image(IMAGE, f"{IMAGE}: not found")
    uid = stage.launch(resolved(image=IMAGE))
    job = await ended(stage, uid)
    assert (job.reason, job.restarts) == ("NotRetryable", ())
    assert f"{IMAGE}: not found" in job.message
    entry = stage.entry(uid)
    assert (entry.attempt, entry.state, entry.reason) == (0, "failed", "ImagePullBackOff")
    assert job.root_cause.id == "image-pull-failure"


async def test_a_registry_that_limits_pulls_gets_one_more_try(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(observing, "CANNOT_START_SECONDS", 1.0)
    stage.cluster.control.refuse_image(IMAGE, TOO_MANY)
    uid = stage.launch(resolved(image=IMAGE))
    job = await ended(stage, uid)
    assert job.reason == "NotRetryable"
    assert [(each.attempt, each.counted) for each in job.restarts] == [(0, True)]
    assert stage.entry(uid).attempt == 1
    assert job.message.endswith("again after one more try")


async def test_a_node_that_starts_nothing_and_names_no_error_gets_one_more_try_elsewhere(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(observing, "SLOW_START_SECONDS", 1.0)
    stage.cluster.control.behave("default/digits-*", creating=True)
    uid = stage.launch(resolved())
    job = await ended(stage, uid)
    assert job.reason == "NotRetryable"
    assert [(each.attempt, each.counted) for each in job.restarts] == [(0, True)]
    assert (stage.entry(uid).attempt, stage.entry(uid).reason) == (1, "ContainerCreating")
    assert "its node has not started it" in job.message


def a_quota(cluster: Cluster, **hard: str) -> None:
    cluster.control.create_namespace("ruled")
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    cluster.control.create({**quota, "spec": {"hard": hard}}, namespace="ruled")


async def test_a_full_quota_is_waited_for_in_its_words_and_charges_nothing(stage: Stage):
    a_quota(stage.cluster, pods="1")
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}, namespace="ruled"))

    def waiting() -> list[Any]:
        shown = run_status(stage.store, uid)["instances"]
        return [each for each in shown if each["waiting_since"]]

    async with stage.driving(uid) as task:
        await until(lambda: len(stage.pods("ruled")) == 1 and len(waiting()) == 1)
        (refused,) = waiting()
        assert (refused["state"], refused["reason"]) == ("pending", "QuotaExceeded")
        assert "exceeded quota: small, requested: pods=1, used: pods=1" in refused["message"]
        stage.cluster.control.delete("resourcequotas", "small", namespace="ruled")
        await until(lambda: set(stage.states(uid).values()) == {"running"})
        assert waiting() == []
        job = stage.store.ledger(uid).job
        assert (
            job.restarts,
            {each.attempt for each in stage.store.ledger(uid).instances.values()},
        ) == ((), {0})
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    told = [each.message for each in stage.events if each.reason == "QuotaExceeded"]
    assert len(told) == len(set(told)) == 1


def larger(cluster: Cluster) -> None:
    """Let the quota take one more."""
    cluster.control.delete("resourcequotas", "small", namespace="ruled")
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    cluster.control.create({**quota, "spec": {"hard": {"pods": "9"}}}, namespace="ruled")


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing that was refused be asked for again by itself."""
    monkeypatch.setattr(waiting_creates, "_FIRST_SECONDS", 9999.0)
    monkeypatch.setattr(refusals, "_REFUSED_SECONDS", 9999.0)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("kept_out", ["pods", "services"])
async def test_what_a_quota_keeps_out_begins_once_there_is_more_room(stage: Stage, kept_out: str):
    a_quota(stage.cluster, **{kept_out: "0"})
    uid = stage.launch(resolved({"name": "worker", "replicas": 4}, namespace="ruled"))
    runtime = stage.runtime()
    asked = runtime.api.requests
    async with stage.driving(uid, runtime=runtime) as task:
        await until(lambda: stage.entry(uid).reason == "QuotaExceeded")
        await until(lambda: asked["watch resourcequotas"] == 1)
        larger(stage.cluster)
        await stage.until_running(uid)
        await until(lambda: stage.cluster.control.open_watches() == 2)  # pods and nodes
        assert asked["list resourcequotas"] == 1
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)


@pytest.mark.usefixtures("patient")
async def test_what_others_give_back_is_room_too(stage: Stage):
    a_quota(stage.cluster, pods="2")
    first = stage.launch(resolved({"name": "worker", "replicas": 2}, namespace="ruled"))
    second = stage.launch(
        resolved({"name": "worker", "replicas": 2}, namespace="ruled"), run_id="two"
    )
    async with stage.driving(first) as driven:
        await stage.until_running(first)
        runtime = stage.runtime()
        async with stage.driving(second, runtime=runtime) as task:
            await until(lambda: runtime.api.requests["watch resourcequotas"] == 1)
            stage.store.add_request(first, "stop", reason="enough")
            assert await asyncio.wait_for(driven, PATIENCE) == "Stopped"
            await stage.until_running(second)
            stage.store.add_request(second, "stop", reason="enough")
            await asyncio.wait_for(task, PATIENCE)


async def test_who_may_not_watch_quotas_waits_as_long_as_ever(stage: Stage):
    a_quota(stage.cluster, pods="0")
    stage.cluster.control.fail_requests(
        code=403, times=100, verb="watch", path="/resourcequotas", message="cannot watch"
    )
    uid = stage.launch(resolved(namespace="ruled"))
    runtime = stage.runtime()
    async with stage.driving(uid, runtime=runtime):
        await until(lambda: runtime.api.requests["watch resourcequotas"] == 1)
        asked = runtime.api.requests["create pods"]
        await until(lambda: runtime.api.requests["create pods"] >= asked + 2)
        assert runtime.api.requests["watch resourcequotas"] == 1
        larger(stage.cluster)
        await stage.until_running(uid)


@pytest.mark.parametrize("counted", ["services", "configmaps", "count/services"])
async def test_a_full_quota_of_what_all_instances_need_is_waited_for_too(
    stage: Stage, counted: str
):
    a_quota(stage.cluster, **{counted: "0"})
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}, namespace="ruled"))

    def said() -> set[tuple[str, str]]:
        entries = stage.store.ledger(uid).instances.values()
        return {(each.reason, each.message.partition(":")[2].strip()) for each in entries}

    async with stage.driving(uid) as task:
        await until(lambda: {reason for reason, _ in said()} == {"QuotaExceeded"}, seen=said)
        assert all(f"exceeded quota: small, requested: {counted}=1" in words for _, words in said())
        assert stage.store.ledger(uid).job.condition == "Submitting", "and not RuntimeUnknown"
        assert all(each["waiting_since"] for each in run_status(stage.store, uid)["instances"])
        stage.cluster.control.delete("resourcequotas", "small", namespace="ruled")
        await stage.until_running(uid)
        assert stage.store.ledger(uid).job.restarts == ()
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    told = [each.index for each in stage.events if each.reason == "QuotaExceeded"]
    assert len(told) == 1, "one event tells of all instances of a role"


@pytest.mark.parametrize("path", ["/pods", "/services"])
async def test_a_403_that_nobody_knows_is_worth_one_grace(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, path: str
):
    monkeypatch.setattr(refusals, "CANNOT_START_SECONDS", 3.0)
    words = 'pods "worker-0" is forbidden: the moon is full'
    stage.cluster.control.fail_requests(
        code=403, times=100, verb="create", path=path, message=words
    )
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await until(lambda: stage.entry(uid).reason == "Forbidden")
        assert (stage.entry(uid).state, stage.entry(uid).message) == ("pending", words)
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert (job.reason, job.restarts) == ("NotRetryable", ())
    assert words in job.message
    assert objects_of(stage.cluster) == []


async def test_a_403_that_nobody_knows_and_that_passes_is_no_failure(stage: Stage):
    stage.cluster.control.fail_requests(code=403, times=2, verb="create", path="/pods")
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await until(lambda: stage.entry(uid).reason == "Forbidden")
        await stage.until_running(uid)
        assert stage.store.ledger(uid).job.restarts == ()


async def test_a_webhook_that_is_away_is_waited_for_while_the_cluster_answers(stage: Stage):
    words = 'Internal error occurred: failed calling webhook "mpod.example": connection refused'
    stage.cluster.control.fail_requests(
        code=500, times=1000, verb="create", path="/pods", message=words
    )
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await until(lambda: stage.entry(uid).reason == "WebhookUnavailable")
        assert stage.entry(uid).message == words
        assert stage.store.ledger(uid).job.condition == "Submitting"
        stage.cluster.control.clear_faults()
        await stage.until_running(uid)
        assert stage.store.ledger(uid).job.restarts == ()
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)


async def test_a_pod_of_somebody_else_under_our_name_ends_the_instance_at_once(stage: Stage):
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        pod = stage.pods()["worker-0"]
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    theirs = {"name": pod["metadata"]["name"], "labels": {"app": "theirs"}}
    spec = {"containers": [{"name": "main", "image": "busybox", "command": ["sleep", "inf"]}]}
    stage.cluster.control.create(
        {"kind": "Pod", "apiVersion": "v1", "metadata": theirs, "spec": spec}
    )
    stage.store.add_request(uid, "reopen", reason="again")
    job = await ended(stage, uid)
    assert (job.reason, job.restarts) == ("NotRetryable", ())
    assert "belongs to somebody else" in job.message


def objects_of(cluster: Cluster) -> list[str]:
    kinds = ("pods", "services", "configmaps", "secrets")
    found = [
        (kind, each) for kind in kinds for each in cluster.control.list(kind, namespace="default")
    ]
    return [
        kind for kind, each in found if "airflow-training/run" in each["metadata"].get("labels", {})
    ]


async def test_a_service_that_the_server_will_never_take_ends_the_run_and_leaves_nothing(
    stage: Stage,
):
    stage.cluster.control.fail_requests(code=422, times=100, verb="create", path="/services")
    uid = stage.launch(resolved())
    job = await ended(stage, uid)
    assert (job.condition, job.reason, job.restarts) == ("SubmitFailed", "CannotBePrepared", ())
    assert job.drained
    assert objects_of(stage.cluster) == []
    assert stage.store.lease(uid) is None


async def test_a_pod_that_a_policy_denies_ends_the_run_and_leaves_nothing(stage: Stage):
    denied = 'admission webhook "policy" denied the request: label cost-centre is required'
    stage.cluster.control.fail_requests(
        code=403, times=100, verb="create", path="/pods$", message=denied
    )
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    job = await ended(stage, uid)
    assert "cost-centre" in job.message
    assert objects_of(stage.cluster) == []


def test_the_command_ends_with_exit_code_2(scripted: Cluster, tmp_path: Path):
    (tmp_path / "hello.yaml").write_text(HELLO)
    shell = Shell(tmp_path, scripted.write_kubeconfig(tmp_path / "kubeconfig"))
    scripted.control.fail_requests(code=422, times=100, verb="create", path="/services")
    done = shell("run", "hello.yaml", "--runtime", "kubernetes", "--run-id", "one", "-o", "json")
    assert done.returncode == 2, done.stderr
    status = json.loads(done.stdout)
    assert (status["state"], status["reason"]) == ("Failed", "CannotBePrepared")
    assert objects_of(scripted) == []


def test_so_it_does_where_a_pod_is_refused_while_the_run_runs(scripted: Cluster, tmp_path: Path):
    (tmp_path / "hello.yaml").write_text(HELLO)
    shell = Shell(tmp_path, scripted.write_kubeconfig(tmp_path / "kubeconfig"))
    cause = "spec.containers[0].image: Invalid value"
    scripted.control.fail_requests(
        code=422, times=100, verb="create", path="/pods", message=cause, past_dry_runs=True
    )
    done = shell("run", "hello.yaml", "--runtime", "kubernetes", "--run-id", "one", "-o", "json")
    assert done.returncode == 2, done.stderr
    status = json.loads(done.stdout)
    assert (status["state"], status["reason"]) == ("Failed", "NotRetryable")
    assert cause in status["message"]
    assert objects_of(scripted) == []


async def test_a_policy_that_came_after_the_start_ends_nothing_that_runs(stage: Stage):
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
    denied = 'admission webhook "policy" denied the request: no services here'
    stage.cluster.control.fail_requests(
        code=403, times=100, verb="create", path="/services", message=denied
    )
    async with stage.driving(uid) as task:  # who takes over prepares anew
        await until(lambda: stage.store.lease(uid) is not None)
        stage.cluster.control.finish(stage.name("worker-0"), exit_code=0)
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    assert stage.store.ledger(uid).job.restarts == ()


async def test_what_all_need_and_is_refused_for_good_ends_only_who_needs_it_while_others_run(
    stage: Stage,
):
    roles = [{"name": "worker", "replicas": 2, "minSucceeded": 1, "minFailed": 2}]
    uid = stage.launch(resolved(*roles))
    runtime = stage.runtime()
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        stage.cluster.control.fail_requests(
            code=422, times=100, verb="create", path="/services", message="no services here"
        )
        name = stage.pods()["worker-0"]["spec"]["subdomain"]
        stage.cluster.control.delete("services", name)
        stage.cluster.control.finish(stage.name("worker-1"), exit_code=3)
        await until(lambda: stage.entry(uid, index=1).state == "failed")
        assert "no services here" in stage.entry(uid, index=1).message
        assert runtime.api.requests["create services"] <= 3
        assert stage.entry(uid).state == "running"
        stage.cluster.control.finish(stage.name("worker-0"), exit_code=0)
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"

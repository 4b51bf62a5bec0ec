"""Situations that people meet on clusters, played on the emulated API: what is told, charged and left behind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_training.control import reasons
from tests.kubernetes.conftest import Stage, resolved
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.e2e

KEY_ERROR = """\
Traceback (most recent call last):
  File "/app/train.py", line 12, in <module>
    image = batch["image"]
KeyError: 'image'
"""
LOST = "torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
IMPORT_ERROR = """\
Traceback (most recent call last):
  File "/app/serve.py", line 1, in <module>
    import vllm
ModuleNotFoundError: No module named 'vllm'
"""


async def test_a_drained_pod_that_ignores_term_moves_is_not_charged_and_is_no_lack_of_memory(
    stage: Stage,
):
    template = {"spec": {"terminationGracePeriodSeconds": 4}}
    stage.cluster.control.behave("worker-1", stop_seconds=3600.0)
    stage.cluster.control.add_node("spare-1")
    stage.cluster.control.add_node("spare-2")
    uid = stage.launch(resolved({"name": "worker", "replicas": 2, "template": template}))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        node = stage.pods()["worker-1"]["spec"]["nodeName"]
        before = stage.uid("worker-1")
        stage.cluster.control.drain(node)
        await until(
            lambda: "worker-1" in stage.pods() and stage.uid("worker-1") != before,
            seen=lambda: [each.message for each in stage.events],
        )
        await stage.until_running(uid)
        assert stage.pods()["worker-1"]["spec"]["nodeName"] != node
        stage.store.add_request(uid, "kill", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    job = stage.store.ledger(uid).job
    assert [each for each in job.restarts if each.counted] == []
    told = " | ".join(f"{each.reason} {each.message}" for each in stage.events)
    assert "did not end within 4 s of SIGTERM, and was killed" in told
    assert "memory" not in told
    assert stage.pods() == {}


async def test_a_run_that_is_killed_while_its_pods_are_created_leaves_none(stage: Stage):
    stage.cluster.control.hold_requests(times=16, verb="create", path="/pods$")
    uid = stage.launch(resolved({"name": "worker", "replicas": 16}))
    async with stage.driving(uid) as task:
        await until(lambda: stage.cluster.control.held_requests() > 2)
        stage.store.add_request(uid, "kill", reason="wrong data")
        await asyncio.sleep(0)
        stage.cluster.control.let_requests_go()
        assert await asyncio.wait_for(task, PATIENCE) == "Stopped"
    assert stage.pods() == {}
    assert stage.store.ledger(uid).job.restarts == ()


async def test_the_first_failure_is_the_headline_in_both_rounds_though_followers_come_late(
    stage: Stage,
):
    uid = stage.launch(
        resolved(
            {"name": "evaluator"},
            {"name": "worker", "replicas": 4},
            restart={"maxRestarts": 1, "scope": "Job", "backoff": {"initialSeconds": 0.05}},
        )
    )
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        first = {name: stage.uid(name) for name in stage.pods() if name.startswith("worker")}
        fail_in_order(stage)
        await until(
            lambda: (
                not {*first.values()} & {each["metadata"]["uid"] for each in stage.pods().values()}
            )
        )
        await until(lambda: {stage.states(uid)[name] for name in first} == {"running"})
        fail_in_order(stage)
        assert await asyncio.wait_for(task, 2 * PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert job.message.startswith("worker-3: exit code 1"), job.message
    assert "KeyError: 'image'" in job.message
    assert (job.root_cause.role, job.root_cause.index) == ("worker", 3)


def fail_in_order(stage: Stage) -> None:
    names = {each: stage.name(each) for each in stage.pods()}
    if "evaluator-0" in names:
        stage.cluster.control.finish(names["evaluator-0"])
    stage.cluster.control.print(names["worker-3"], KEY_ERROR)
    stage.cluster.control.finish(names["worker-3"], exit_code=1)
    for index in (0, 2, 1):
        stage.cluster.control.print(names[f"worker-{index}"], LOST)
        stage.cluster.control.finish(names[f"worker-{index}"], exit_code=1)


async def test_who_waits_for_a_server_that_cannot_be_imported_was_never_started(stage: Stage):
    uid = stage.launch(
        resolved(
            {"name": "server"},
            {
                "name": "client",
                "replicas": 3,
                "dependsOn": [{"role": "server", "status": "Complete"}],
            },
            restart={"maxRestarts": 0},
        )
    )
    async with stage.driving(uid) as task:
        await until(lambda: stage.states(uid).get("server-0") == "running")
        stage.cluster.control.print(stage.name("server-0"), IMPORT_ERROR)
        stage.cluster.control.finish(stage.name("server-0"), exit_code=1)
        assert await asyncio.wait_for(task, PATIENCE) == "Failed"
    job = stage.store.ledger(uid).job
    assert job.message.startswith("server-0: ")
    assert "No module named 'vllm'" in job.message
    states: dict[str, Any] = stage.states(uid)
    assert {states[f"client-{each}"] for each in range(3)} == {"stopped"}
    entries = [stage.entry(uid, "client", each) for each in range(3)]
    assert {each.reason for each in entries} == {reasons.NOT_NEEDED}


async def test_clients_say_the_servers_own_reason_while_it_has_no_place(stage: Stage):
    huge = {"requests": {"cpu": "3"}, "limits": {"cpu": "3"}}
    quota = {"kind": "ResourceQuota", "apiVersion": "v1", "metadata": {"name": "small"}}
    stage.cluster.control.create({**quota, "spec": {"hard": {"requests.cpu": "2"}}})
    small = {"requests": {"cpu": "100m"}, "limits": {"cpu": "100m"}}
    uid = stage.launch(
        resolved(
            {"name": "server", "resources": huge},
            {
                "name": "client",
                "replicas": 2,
                "resources": small,
                "dependsOn": [{"role": "server"}],
            },
        )
    )
    async with stage.driving(uid) as task:
        await until(
            lambda: "exceeded quota: small" in stage.entry(uid, "client").message,
            seen=lambda: stage.entry(uid, "client").message,
        )
        assert "server waits: QuotaExceeded: " in stage.store.ledger(uid).roles["client"].message
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)

"""A node that is unfit is left before what runs there hangs: told by one watch for all, where nodes may be read."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.state.store import Store
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, until

TEAM = {"name": "worker", "replicas": 2}


def team(stage: Stage, **spec: Any) -> ResolvedJob:
    restart = {"scope": "Job", "maxRestarts": 0, "backoff": {"initialSeconds": 0.05}}
    checkpoint = {"uri": str(stage.folder / "checkpoints")}
    return resolved(TEAM, **{"checkpoint": checkpoint, "restart": restart, **spec})


def node_of(stage: Stage, instance: str) -> str:
    return str(stage.pods()[instance]["spec"]["nodeName"])


def break_gpu(stage: Stage, node: str, *, on: bool = True) -> None:
    stage.cluster.control.node_condition(
        node, "XidCriticalError", on=on, reason="Xid79", message="GPU has fallen off the bus"
    )


def told(stage: Stage, reason: str) -> list[str]:
    return [each.message for each in stage.events if each.reason == reason]


async def test_a_job_with_checkpoints_leaves_a_node_whose_gpu_is_bad(stage: Stage):
    uid = stage.launch(team(stage))
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        bad = node_of(stage, "worker-1")
        break_gpu(stage, bad)
        await until(lambda: stage.store.ledger(uid).job.job_attempt == 1)
        await stage.until_running(uid)
        assert bad not in {node_of(stage, each) for each in stage.pods()}
        words = (
            f"node {bad}: condition XidCriticalError is True (Xid79: GPU has fallen off the bus)"
        )
        assert told(stage, "NodeUnfit")[0] == f"{words}; it begins again elsewhere"
        assert words in told(stage, "JobRestarted")[0]
        [record] = stage.store.ledger(uid).job.restarts
        assert (record.rule, record.counted) == ("unfitNodes", False)
        for each in stage.pods():
            stage.cluster.control.finish(stage.name(each))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"


async def test_a_job_without_checkpoints_is_warned_of_the_node_and_stays(stage: Stage):
    uid = stage.launch(team(stage, checkpoint=None))
    async with stage.driving(uid):
        await stage.until_running(uid)
        pods = {stage.uid(each) for each in stage.pods()}
        bad = node_of(stage, "worker-1")
        break_gpu(stage, bad)
        await until(lambda: stage.entry(uid, index=1).reason == "NodeUnfit")
        assert f"node {bad}: condition XidCriticalError" in stage.entry(uid, index=1).message
        break_gpu(stage, bad, on=False)
        await until(lambda: stage.entry(uid, index=1).reason == "Started")
        assert {stage.uid(each) for each in stage.pods()} == pods
    assert {each.split("; ")[-1] for each in told(stage, "NodeUnfit")} == {
        "it stays: unfitNodes.action is Warn, as the job keeps no checkpoint"
    }


async def test_a_job_names_the_taints_that_count(stage: Stage):
    policy = {"unfitNodes": {"taints": ["example.com/maintenance"], "action": "Move"}}
    uid = stage.launch(team(stage, checkpoint=None, schedulingPolicy=policy))
    async with stage.driving(uid):
        await stage.until_running(uid)
        node = node_of(stage, "worker-0")
        stage.cluster.control.taint_node(node, "ToBeDeletedByClusterAutoscaler")
        stage.cluster.control.taint_node(node, "example.com/maintenance")
        await until(lambda: stage.store.ledger(uid).job.job_attempt == 1)
        await stage.until_running(uid)
    assert f"node {node}: taint example.com/maintenance;" in told(stage, "NodeUnfit")[0]


async def test_a_run_that_may_not_see_nodes_trains_and_asks_for_them_once(stage: Stage):
    control = stage.cluster.control
    control.add_user("trainer", token="trainer")
    rules = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    control.allow("trainer", rules, namespace="default")
    uid = stage.launch(team(stage))
    runtime = stage.runtime(token="trainer")
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        break_gpu(stage, node_of(stage, "worker-1"))
        await until(lambda: runtime.api.requests["list nodes"] == 1)
        for each in stage.pods():
            control.finish(stage.name(each))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    assert [runtime.api.requests[f"{verb} nodes"] for verb in ("list", "watch")] == [1, 0]
    assert not told(stage, "NodeUnfit")


async def test_all_runs_share_one_watch_of_nodes_and_a_job_that_ignores_them_has_none(stage: Stage):
    ignoring = team(stage, name="ignoring", schedulingPolicy={"unfitNodes": {"action": "Ignore"}})
    runtime = stage.runtime()
    first = stage.launch(ignoring, run_id="first")
    async with stage.driving(first, runtime=runtime):
        await stage.until_running(first)
        assert runtime.api.requests["list nodes"] == 0
        others = [stage.launch(team(stage, name=f"n{i}"), run_id=f"r{i}") for i in range(2)]
        async with stage.driving(others[0], runtime=runtime):
            await stage.until_running(others[0])
            async with stage.driving(others[1], runtime=runtime):
                await stage.until_running(others[1])
                await until(lambda: runtime.api.requests["watch nodes"] == 1)
                assert runtime.api.requests["list nodes"] == 1
                for node in stage.cluster.control.list("nodes"):
                    break_gpu(stage, node["metadata"]["name"])
                await until(lambda: len(told(stage, "NodeUnfit")) >= 4)
                assert [runtime.api.requests[f"{verb} nodes"] for verb in ("list", "watch")] == [
                    1,
                    1,
                ]
        assert stage.store.ledger(first).job.restarts == ()


async def test_all_that_move_are_told_to_end_and_have_the_time_to_save(
    tmp_path: Path, sqlite_template: Path
):
    shutil.copy(sqlite_template, tmp_path / "store.db")
    saved, begun = tmp_path / "saved", tmp_path / "begun"
    saved.mkdir()
    begun.mkdir()
    script = (
        f"trap 'sleep 1; touch {saved}/$TRAINING_INDEX; exit 0' TERM; touch {begun}/$TRAINING_INDEX;"
        " while :; do sleep 0.1; done"
    )
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    with Cluster(kubelet="processes") as cluster:
        stage = Stage(store=store, cluster=cluster, folder=tmp_path)
        uid = stage.launch(team(stage, command=["sh", "-c", script]))
        async with stage.driving(uid):
            await stage.until_running(uid)
            await until(lambda: len(list(begun.iterdir())) == 2)
            break_gpu(stage, node_of(stage, "worker-1"))
            await until(lambda: stage.store.ledger(uid).job.job_attempt == 1)
            await stage.until_running(uid)
            assert {each.name for each in saved.iterdir()} == {"0", "1"}
            assert {stage.entry(uid, index=i).attempt for i in range(2)} == {1}
            stage.store.add_request(uid, "kill", reason="enough")
            await until(lambda: stage.store.ledger(uid).job.drained)
    store.close()

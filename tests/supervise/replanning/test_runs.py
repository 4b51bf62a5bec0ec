"""Runs whose cluster changes, end to end in a simulation."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import RuntimeUnavailable
from tests.supervise.conftest import Stage
from tests.supervise.replanning.lab import FAR
from tests.waiting import PATIENCE, until


def alive(stage: Stage, uid: str) -> list[int]:
    return sorted(index for _, index in stage.live(uid))


def told(stage: Stage, uid: str, reason: str) -> list[Any]:
    return [each.event for each in stage.store.events(uid) if each.event.reason == reason]


def report(stage: Stage, uid: str, *, step: int, of: int) -> None:
    stage.runtime.report(uid, "worker", 0, ProgressReport(step=step, total_steps=of))


async def test_a_run_goes_on_with_fewer_and_goes_back_when_the_node_is_there_again(stage, lab):
    uid = stage.launch(lab.job())
    first = stage.store.job(uid).plan
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        lab.has(2)
        await until(lambda: alive(stage, uid) == [0, 1] and told(stage, uid, "Replanned"))
        second = stage.store.job(uid).plan
        assert second.strategy["dp"] == 2
        assert second.applied_replicas == {"worker": 2}
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        for index in (0, 1):
            spec = stage.runtime.spec(uid, "worker", index)
            assert spec.env["DP_SIZE"] == "2"
            assert spec.ref.job_attempt == 1
            [plan] = [text for path, text in spec.files.items() if path.endswith("plan.json")]
            assert json.loads(plan)["devices"] == 2

        report(stage, uid, step=10, of=FAR)
        lab.has(3)
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        assert stage.runtime.spec(uid, "worker", 2).env["DP_SIZE"] == "3"
    last = stage.store.job(uid).plan.document
    assert last == {**first.document, "seconds": last["seconds"]}
    ledger = stage.store.ledger(uid)
    assert ledger.job.job_attempt == 2
    assert ledger.job.restarts == ()
    lost, regained = told(stage, uid, "Replanned")
    assert lost.message.startswith("gpus lost 1 node, 2 are left: the split takes 3 devices")
    assert "costs" in lost.message
    assert lost.data["before"] == first.id == regained.data["plan"]
    assert regained.data["saved_seconds"] > regained.data["cost_seconds"] > 0
    assert regained.data["cost_steps"] > 10, "without a checkpoint all steps are run again"


async def test_it_does_not_move_where_that_does_not_pay_and_says_so_once(stage, lab, looks):
    lab.has(2)
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        report(stage, uid, step=FAR, of=FAR + 3)
        lab.has(3)
        await until(lambda: told(stage, uid, "ClusterChanged"))
        await until(looks.more())
    [event] = told(stage, uid, "ClusterChanged")
    assert event.message.startswith("gpus gained 1 node, now 3: the best split saves")
    assert event.data["action"] == "stay"
    assert stage.store.ledger(uid).job.job_attempt == 0


async def test_where_nothing_fits_it_says_so_and_stays_as_it_is(stage, lab):
    uid = stage.launch(lab.job(constraints={"devices": 3}))
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1, 2])
        lab.has(2)
        await until(lambda: told(stage, uid, "ReplanFailed"))
        assert alive(stage, uid) == [0, 1, 2]
    [event] = told(stage, uid, "ReplanFailed")
    assert event.level == "warning"
    assert "spec.plan.constraints.devices" in event.message


async def test_a_paused_run_changes_when_it_is_resumed(stage, lab, looks):
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: len(alive(stage, uid)) == 3)
        stage.store.add_request(uid, "pause")
        await until(lambda: not alive(stage, uid))
        await until(lambda: stage.store.ledger(uid).job.state == "Paused")
        lab.has(2)
        await until(looks.more())
        assert stage.store.ledger(uid).job.state == "Paused"
        assert not told(stage, uid, "Replanned")
        stage.store.add_request(uid, "resume")
        await until(lambda: told(stage, uid, "Replanned") and alive(stage, uid) == [0, 1])


async def test_a_holder_that_dies_right_after_the_new_job_was_stored_is_followed_by_one_that_goes_on(
    stage, lab, monkeypatch
):
    uid = stage.launch(lab.job())
    commit = stage.store.commit
    async with stage.driving(uid) as task:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")

        def commit_and_die(*arguments: Any, job: ResolvedJob | None = None, **named: Any) -> None:
            commit(*arguments, job=job, **named)
            if job is not None:
                task.get_loop().call_soon_threadsafe(task.cancel)

        monkeypatch.setattr(stage.store, "commit", commit_and_die)
        lab.has(2)
        await asyncio.wait([task], timeout=PATIENCE)
        assert task.cancelled()
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert stage.store.job(uid).role("worker").replicas == 2
    assert alive(stage, uid) == [0, 1, 2], "nothing was done yet"
    monkeypatch.undo()
    async with stage.driving(uid):
        await until(lambda: alive(stage, uid) == [0, 1])
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert len(told(stage, uid, "Replanned")) == 1


async def test_a_store_that_breaks_during_the_change_leaves_the_old_split_or_the_new_one(
    stage, lab, monkeypatch
):
    """The transaction went through, but its answer never came back."""
    uid = stage.launch(lab.job())
    commit = stage.store.commit
    broken: list[ResolvedJob] = []

    def break_once(*arguments: Any, job: ResolvedJob | None = None, **named: Any) -> None:
        commit(*arguments, job=job, **named)
        if job is not None and not broken:
            broken.append(job)
            raise RuntimeUnavailable("the connection broke")

    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        monkeypatch.setattr(stage.store, "commit", break_once)
        lab.has(2)
        await until(lambda: broken and alive(stage, uid) == [0, 1])
        assert stage.runtime.spec(uid, "worker", 0).env["DP_SIZE"] == "2"
    assert stage.store.ledger(uid).job.job_attempt == 1


async def test_a_cluster_that_cannot_be_seen_is_no_change_and_told_once(stage, lab, looks, caplog):
    uid = stage.launch(lab.job())
    async with stage.driving(uid):
        await until(lambda: len(alive(stage, uid)) == 3)
        lab.file.unlink()
        await until(lambda: "cannot be seen" in caplog.text)
        await until(looks.more())
        assert caplog.text.count("cannot be seen") == 1
        assert len(alive(stage, uid)) == 3
        lab.has(2)
        await until(lambda: alive(stage, uid) == [0, 1])

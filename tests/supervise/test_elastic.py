"""An elastic run on a simulated runtime: what it is told when it shrinks and grows, whoever drives it."""

from __future__ import annotations

import json
import time

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.runtimes.faults import Behaviour, Script
from tests.builders import job, role
from tests.waiting import until

FOREVER = Script(default=Behaviour(run_seconds=None))


def elastic():
    ranks = {"RANKS": "{{ rank }} of {{ world_size }}"}
    worker = role("worker", 3, min_replicas=2, max_replicas=3, chief=True, env=ranks)
    return job(
        worker,
        elastic=True,
        scope="Job",
        max_restarts=0,
        runtime="memory",
        checkpoint={"uri": "/nowhere"},
    )


def commit(stage, uid, step):
    told = json.loads(stage.runtime.spec(uid, "worker", 0).env["TRAINING_CHECKPOINT"])
    reference = CheckpointCommit(uri=told["root"], step=step, digest="d", at=time.time())
    stage.runtime.report(uid, "worker", 0, ProgressReport(step=step, checkpoint=reference))


def size(stage, uid):
    entry = stage.store.ledger(uid).roles["worker"]
    return entry.replicas, entry.desired


async def test_it_shrinks_and_grows_back_whoever_drives_it(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(elastic())
    everyone = {("worker", index) for index in range(3)}

    def told(index):
        return stage.runtime.spec(uid, "worker", index).env["RANKS"]

    async with stage.driving(uid):
        await until(lambda: stage.live(uid) == everyone)
        stage.runtime.finish(uid, "worker", 0, signal=9)
        await until(lambda: size(stage, uid) == (2, 3))
        await until(lambda: stage.live(uid) == everyone - {("worker", 2)})
        assert [told(0), told(1)] == ["0 of 2", "1 of 2"]
    async with stage.driving(uid):  # another one, who knows only what is in the store
        commit(stage, uid, step=10)
        await until(lambda: size(stage, uid) == (3, 3))
        assert stage.live(uid) == everyone
        assert told(2) == "2 of 3"
    assert [told(0), told(1)] == ["0 of 2", "1 of 2"], "nobody was restarted for it"
    reasons = stage.reasons(uid)
    assert [reasons.count(each) for each in ("GoesOnWithFewer", "BackToFullSize")] == [1, 1]
    (record,) = stage.store.ledger(uid).job.restarts
    assert (record.failure_class, record.rule) == ("infrastructure", "minReplicas")

"""Rows of progress and of outputs: what earlier versions wrote, and what they can read of ours."""

from __future__ import annotations

import json
import math

from sqlalchemy import insert, select, update

from airflow_training.control.reports import ProcessReport, ProgressReport, RejectedCheckpoint
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.runtimes.progress import progress_of
from airflow_training.state.models import ProgressRow, RunRow
from airflow_training.state.store import LogPosition, Store
from tests.state.samples import add_run

KEY = InstanceKey("worker", 0)
EARLIER = """{
    "step": 7, "total_steps": 90, "epoch": 0.5, "samples": 56, "time": 8.0,
    "metrics": {"loss": 0.5, "grad": NaN},
    "subtasks": [{
        "rank": 0, "generation": 1, "sequence": 4, "state": "SAVED", "step": 6, "verified": [5, 6],
        "world": 2, "group": "", "environment": "sha256:e",
        "rejected": [{"at": 1.0, "why": "damaged", "step": 5, "restore": "r"}]
    }],
    "checkpoint": {
        "uri": "s3://c", "step": 6, "digest": "sha256:c", "at": 7.5, "seconds": 1.5,
        "stall_seconds": null, "bytes": 12
    },
    "section": "eval", "rejected": []
}"""
REPORT = ProgressReport(
    step=7,
    total_steps=90,
    epoch=0.5,
    samples=56,
    time=8.0,
    metrics={"loss": 0.5, "grad": math.nan},
    subtasks=(
        ProcessReport(
            rank=0,
            generation=1,
            sequence=4,
            state="SAVED",
            step=6,
            verified=(5, 6),
            world=2,
            environment="sha256:e",
            rejected=(RejectedCheckpoint(at=1.0, why="damaged", step=5, restore="r"),),
        ),
    ),
    checkpoint=CheckpointCommit(
        uri="s3://c", step=6, digest="sha256:c", at=7.5, seconds=1.5, bytes=12
    ),
    section="eval",
)


def write_row(store: Store, uid: str, body: str) -> None:
    row = {"run": uid, "role": KEY[0], "index": KEY[1], "body": body}
    with store._db.write() as connection:
        connection.execute(insert(ProgressRow), row)


def row_of(store: Store, uid: str) -> str:
    with store._db.read() as connection:
        return str(
            connection.execute(select(ProgressRow.body).where(ProgressRow.run == uid)).scalar_one()
        )


def test_progress_of_an_earlier_version_is_read(store: Store):
    uid = add_run(store).uid
    write_row(store, uid, EARLIER)
    assert repr(store.progress.newest(uid)) == repr({KEY: REPORT})


def test_an_earlier_version_reads_the_progress_of_this_one(store: Store):
    uid = add_run(store).uid
    store.progress.save(uid, {KEY: REPORT})
    assert repr(progress_of(json.loads(row_of(store, uid)))) == repr(REPORT)


def test_what_a_log_told_an_earlier_version_gives_way_to_the_script_and_not_to_the_log(
    store: Store,
):
    uid = add_run(store).uid
    write_row(store, uid, '{"step": 3, "time": 4.0, "from_log": true}')
    assert store.progress.newest(uid) == {KEY: ProgressReport(step=3, time=4.0)}
    first = LogPosition(epoch=0, job_attempt=0, attempt=0, done=10)
    second = LogPosition(epoch=0, job_attempt=0, attempt=0, done=20)
    told = ProgressReport(step=4, time=5.0)
    store.log_values.save(uid, KEY, before=None, after=first, values=(), progress=told)
    assert store.progress.newest(uid) == {KEY: told}
    assert json.loads(row_of(store, uid))["from_log"] is True
    store.progress.save(uid, {KEY: ProgressReport(step=9)})
    store.log_values.save(uid, KEY, before=first, after=second, values=(), progress=told)
    assert store.progress.newest(uid) == {KEY: ProgressReport(step=9)}
    assert "from_log" not in json.loads(row_of(store, uid)), "an earlier version asks for the word"


def test_an_output_of_an_earlier_version_is_read(store: Store):
    uid = add_run(store).uid
    body = '{"uri": "s3://m", "bytes": 3, "digest": "sha256:1"}'
    with store._db.write() as connection:
        connection.execute(update(RunRow).where(RunRow.uid == uid).values(output=body))
    assert store.output(uid) == RunOutput(uri="s3://m", bytes=3, digest="sha256:1")

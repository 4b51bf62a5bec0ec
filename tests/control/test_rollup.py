"""The document that `status` prints: exactly these keys, and only what is true."""

from __future__ import annotations

import dataclasses
import json

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.control.reports import ProgressReport
from airflow_training.control.rollup import checkpoint_reference, rollup
from airflow_training.control.run_output import RunOutput
from airflow_training.control.usage import AttemptUsage
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import CheckpointCommit
from tests.builders import Bench, after, job, role

TOP = [
    "run_id", "job", "state", "condition", "reason", "message", "job_attempt", "epoch", "fresh_jobs",
    "observed_at", "submitted_by", "submitted_at", "started_at", "running_at", "finished_at", "last_transition_at",
    "trained_seconds", "roles", "instances", "restarts", "root_cause", "kept", "advice", "output", "checkpoint",
    "plan", "environment", "usage", "unreachable",
]  # fmt: skip
ROLE = [
    "state", "reason", "message", "last_transition_at", "desired", "pending", "running",
    "succeeded", "failed", "stopped", "terminating", "unknown", "restarts",
]  # fmt: skip
INSTANCE = [
    "role", "index", "attempt", "state", "reason", "message", "exit_code", "signal", "address",
    "node", "last_transition_at", "waiting_since", "progress", "eta_seconds", "data_files",
    "memory_bytes",
]  # fmt: skip


def status(bench, **given):
    facts = {"run_id": "r1", "progress": {}, "usage": [], "output": None, "now": bench.now}
    document = rollup(bench.job, bench.ledger, **(facts | given))
    return json.loads(json.dumps(document))


def test_the_keys_are_those_of_the_reference():
    document = status(Bench(job(role("master"), role("worker", 2))).settle())
    assert list(document) == TOP
    assert list(document["roles"]["worker"]) == ROLE
    assert list(document["instances"][0]) == INSTANCE
    assert list(document["restarts"]) == [
        "user", "infrastructure", "preemption", "resource", "unknown",
    ]  # fmt: skip
    assert [(i["role"], i["index"]) for i in document["instances"]] == [
        ("master", 0),
        ("worker", 0),
        ("worker", 1),
    ]


def test_counters_restarts_and_times():
    bench = Bench(job(role("worker", 3))).settle()
    bench.now += 10
    bench.end("worker", 0).end("worker", 1, 1).settle()
    document = status(bench)
    worker = document["roles"]["worker"]
    assert (worker["desired"], worker["succeeded"], worker["running"]) == (3, 1, 2)
    assert worker["restarts"] == document["restarts"]["user"] == 1
    assert document["trained_seconds"] == 10
    assert document["submitted_at"] == "1970-01-01T00:16:40.000Z"
    assert document["finished_at"] is None


def test_the_newest_checkpoint_is_named():
    bench = Bench(job()).settle()
    assert status(bench)["checkpoint"] is None
    assert checkpoint_reference(bench.ledger) is None
    known = CheckpointCommit(uri="s3://ckpt/run/0", step=900, digest="sha256:0", at=1.0, bytes=12)
    entry = dataclasses.replace(bench.ledger.job, checkpoint=known)
    bench.ledger = dataclasses.replace(bench.ledger, job=entry)
    reference = {"uri": "s3://ckpt/run/0", "step": 900, "digest": "sha256:0"}
    assert status(bench)["checkpoint"] == {**reference, "at": 1.0, "bytes": 12}
    assert checkpoint_reference(bench.ledger) == reference


def test_progress_and_what_is_left():
    bench = Bench(job()).settle()
    bench.now += 100
    said = ProgressReport(
        step=25, total_steps=100, epoch=1, samples=800, time=bench.now, metrics={"loss": 1.0}
    )
    document = status(bench, progress={InstanceKey("worker", 0): said})
    (instance,) = document["instances"]
    assert instance["progress"] == {"step": 25, "total_steps": 100, "epoch": 1, "samples": 800}
    assert instance["eta_seconds"] == 300
    assert status(bench)["instances"][0]["eta_seconds"] is None
    bench.end("worker").step()
    assert status(bench)["instances"][0]["eta_seconds"] == 0


def test_a_job_is_reported_over_only_when_nothing_is_alive():
    bench = Bench(job(role("master"), role("ps", tracked=False))).settle()
    bench.end("master").decide()
    document = status(bench)
    assert (document["state"], document["condition"]) == ("Running", "StopRequested")
    assert document["finished_at"] is None
    bench.act()
    bench.decide()
    document = status(bench)
    assert (document["state"], document["condition"]) == ("Succeeded", "Finished")
    assert document["finished_at"] is not None


def test_the_root_cause_is_the_earliest_failure():
    spec = job(role("worker", 3, restart_policy="Never"))
    bench = Bench(spec).settle()
    bench.end("worker", 0, 143, finished_at=bench.now - 1, reason="Error")
    bench.end("worker", 2, 1, finished_at=bench.now - 2, message="ValueError: no data")
    bench.settle(starting=False)
    assert status(bench)["root_cause"] == {
        "id": "unknown",
        "category": "user-error",
        "retryable": "unknown",
        "confidence": 0.3,
        "rank": None,
        "file": None,
        "line": None,
        "offset": None,
        "evidence": "ValueError: no data",
        "advice": "",
        "role": "worker",
        "index": 2,
        "attempt": 0,
        "reason": "Error",
        "message": "ValueError: no data",
        "at": "1970-01-01T00:16:38.000Z",
        "exit_code": 1,
        "signal": None,
    }


def test_one_killed_at_the_same_moment_is_not_the_cause():
    bench = Bench(job(role("worker", 2, restart_policy="Never"))).settle()
    bench.end("worker", 0, 143, signal=15).end("worker", 1, 1).settle(starting=False)
    cause = status(bench)["root_cause"]
    assert cause["index"] == 1


def test_a_job_that_succeeded_has_no_root_cause_and_passes_side_data_on():
    bench = Bench(job()).settle()
    bench.end("worker", 0, 1).settle()
    bench.end("worker").settle(starting=False)
    used = AttemptUsage(
        key=InstanceKey("worker", 0),
        attempt_id=AttemptId(epoch=1, job_attempt=2, attempt=3),
        started_at=1700000001.0,
        finished_at=1700000004.0,
        resources={"cpu": "500m"},
        seconds=3.0,
    )
    goes_on = dataclasses.replace(used, key=InstanceKey("worker", 1), finished_at=None)
    output = RunOutput(uri="s3://m", bytes=3, digest="sha256:1")
    document = status(bench, output=output, usage=[used, goes_on])
    assert document["root_cause"] is None
    assert document["output"] == {"uri": "s3://m", "bytes": 3, "digest": "sha256:1"}
    assert document["usage"][0] == {
        "role": "worker",
        "index": 0,
        "epoch": 1,
        "job_attempt": 2,
        "attempt": 3,
        "started_at": "2023-11-14T22:13:21.000Z",
        "finished_at": "2023-11-14T22:13:24.000Z",
        "resources": {"cpu": "500m"},
        "seconds": 3.0,
    }
    assert document["usage"][1] == {**document["usage"][0], "index": 1, "finished_at": None}


def test_a_pause_is_no_training():
    bench = Bench(job()).settle()
    bench.step(seconds=10)
    bench.request("pause").step()
    bench.step(seconds=100)
    assert status(bench)["trained_seconds"] == 10
    bench.request("resume").settle()
    bench.step(seconds=5)
    assert status(bench)["trained_seconds"] == 15


def test_each_instance_names_its_part_of_the_data():
    data = {"files": ["a", "b", "c"], "shard": "byInstance"}
    bench = Bench(job(role("worker", 2, chief=True), data=data)).settle()
    assert [i["data_files"] for i in status(bench)["instances"]] == [["a", "c"], ["b"]]


def test_nothing_of_a_stopped_run_is_pending():
    bench = Bench(job(role("master"), role("worker", 2, after("master", "Complete")))).settle()
    assert status(bench)["roles"]["worker"]["pending"] == 2
    bench.request("stop").decide()
    bench.end("master", 0, 143, signal=15).settle()
    document = status(bench)
    assert document["state"] == "Stopped"
    worker = document["roles"]["worker"]
    assert (worker["state"], worker["pending"], worker["stopped"]) == ("Stopped", 0, 2)


@pytest.mark.parametrize("code", [7, 143], ids=["exit code", "as if we had ended it"])
def test_a_role_with_an_instance_that_failed_by_itself_has_failed_the_others_are_stopped(code):
    spec = job(role("master"), role("worker", 2), max_restarts=0)
    bench = Bench(spec).settle()
    bench.end("worker", 1, code).settle()
    document = status(bench)
    assert document["state"] == "Failed"
    worker, master = document["roles"]["worker"], document["roles"]["master"]
    assert (worker["state"], worker["failed"], worker["stopped"]) == ("Failed", 1, 1)
    assert (worker["reason"], worker["message"]) == ("InstanceFailed", "1 of 2 instances failed")
    assert (master["state"], master["reason"]) == ("Stopped", "JobFailed")


def waiting(*reasons: str, words: str = "why") -> Bench:
    """Return a job of one role whose instances wait, each for its reason; "": it runs."""
    bench = Bench(job(role("worker", len(reasons))))
    bench.step()
    for index, reason in enumerate(reasons):
        if reason:
            bench.set("worker", index, reason=reason, message=f"{words} {index}")
        else:
            bench.set("worker", index, state="running")
    bench.decide()
    return bench


@pytest.mark.parametrize(
    ("reasons", "shown"),
    [
        (("Unschedulable", "Unschedulable"), ("Unschedulable", "why 0")),
        (("", "Unschedulable"), ("Unschedulable", "1 of 2 instances: why 1")),
        (("A", "B", "B"), ("B", "2 of 3 instances: why 1")),
        (("B", "A"), ("B", "1 of 2 instances: why 0")),
    ],
)
def test_role_and_job_say_what_their_instances_wait_for(reasons, shown):
    document = status(waiting(*reasons))
    assert document["state"] == document["roles"]["worker"]["state"] == "Starting"
    for each in (document, document["roles"]["worker"]):
        assert (each["reason"], each["message"]) == shown


def test_what_is_refused_for_now_is_said_by_role_and_job_too():
    bench = Bench(job(role("worker", 2)))
    bench.decide()
    refused = {
        key: dataclasses.replace(each, reason="QuotaExceeded", message="exceeded quota: small")
        for key, each in bench.ledger.instances.items()
    }
    bench.ledger = dataclasses.replace(bench.ledger, instances=refused)
    document = status(bench)
    for each in (document, document["roles"]["worker"], *document["instances"]):
        assert (each["reason"], each["message"]) == ("QuotaExceeded", "exceeded quota: small")


def test_who_runs_or_has_ended_says_its_own_reason():
    bench = Bench(job(role("worker", 2))).settle()
    document = status(bench)
    assert document["reason"] == document["roles"]["worker"]["reason"] == "Running"
    bench.end("worker", 0).end("worker", 1).settle(starting=False)
    assert status(bench)["reason"] == "Completed"

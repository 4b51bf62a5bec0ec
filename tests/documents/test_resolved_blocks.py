"""The typed blocks of a resolved job are stored as they always were."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import (
    CheckpointReference,
    FromAsset,
    FromRun,
    ResolvedCheckpoint,
    ResolvedData,
    ResolvedLogPattern,
    ResolvedPlan,
    SaveEverySeconds,
    SaveEverySteps,
    StallRules,
)
from airflow_training.state.codec import from_json, to_json
from tests.frameworks.samples import a_resolved_job

INITIAL = {"uri": "s3://c/tuesday/0", "step": 7, "digest": "sha256:7"}
REFERENCE = CheckpointReference(uri="s3://c/tuesday/0", step=7, digest="sha256:7")
ROUNDS = {"name": "rounds", "line": "round {step} of", "example": "round 1 of"}
PLAN = {
    "id": "2f1c",
    "model": "tiny",
    "capacity": "free",
    "strategy": {"dp": 2, "micro_batch": 8},
    "step_time_s": 0.25,
    "applied": {"replicas": {"worker": 2}, "env": ["DP_SIZE", "TP_SIZE"], "role": "worker"},
    "measurements": {"subject": "tiny on gpus", "factor": 1.5, "runs": 1},
    "cluster_view": {"nodes": []},
}

STORED = [
    pytest.param("data", None, ResolvedData(), id="no-data"),
    pytest.param(
        "data",
        {"uri": "s3://d", "files": [], "shard": None, "initialModel": None},
        ResolvedData(uri="s3://d"),
        id="data",
    ),
    pytest.param(
        "data",
        {"uri": None, "files": ["a", "b"], "shard": "byInstance", "initialModel": "s3://m"},
        ResolvedData(files=("a", "b"), by_instance=True, initial_model="s3://m"),
        id="parts-of-data",
    ),
    pytest.param("checkpoint", None, None, id="no-checkpoint"),
    pytest.param(
        "checkpoint",
        {"uri": "s3://c", "everySeconds": 600, "keep": 3, "resume": "latest"},
        ResolvedCheckpoint(uri="s3://c"),
        id="checkpoint",
    ),
    pytest.param(
        "checkpoint",
        {
            "uri": "s3://c",
            "everySteps": 5,
            "keep": 7,
            "keepEvery": 10,
            "resume": 100,
            "watch": "out",
            "progress": {"stallSeconds": 30, "stallFactor": 1.5, "sections": {"eval": 600}},
            "initial": INITIAL,
        },
        ResolvedCheckpoint(
            uri="s3://c",
            every=SaveEverySteps(5),
            keep=7,
            keep_every=10,
            resume=100,
            watch="out",
            stall=StallRules(seconds=30, factor=1.5, sections={"eval": 600}),
            initial=REFERENCE,
        ),
        id="checkpoint-with-all",
    ),
    pytest.param(
        "checkpoint",
        {
            "uri": "s3://c",
            "everySeconds": 0.5,
            "keep": 3,
            "resume": {"fromRun": "tuesday", "step": 40},
            "progress": {"sections": {}},
            "initialOfEach": {"worker-0": INITIAL},
            "passedOver": ["worker-0: step 50 is damaged: x"],
        },
        ResolvedCheckpoint(
            uri="s3://c",
            every=SaveEverySeconds(0.5),
            resume=FromRun("tuesday", 40),
            stall=StallRules(),
            initial_of_each={"worker-0": REFERENCE},
            passed_over=("worker-0: step 50 is damaged: x",),
        ),
        id="checkpoints-of-a-run",
    ),
    pytest.param(
        "checkpoint",
        {"uri": "s3://c", "every": "auto", "keep": 3, "resume": {"asset": "s3://a"}},
        ResolvedCheckpoint(uri="s3://c", every="auto", resume=FromAsset("s3://a")),
        id="checkpoint-of-an-asset",
    ),
    pytest.param("log_patterns", [ROUNDS], (ResolvedLogPattern(**ROUNDS),), id="log-pattern"),  # type: ignore[arg-type]  # of texts alone
    pytest.param("plan", None, None, id="no-plan"),
    pytest.param(
        "plan",
        PLAN,
        ResolvedPlan(
            document=PLAN,
            id="2f1c",
            capacity="free",
            strategy={"dp": 2, "micro_batch": 8},
            step_seconds=0.25,
            applied_replicas={"worker": 2},
            applied_env=frozenset({"DP_SIZE", "TP_SIZE"}),
            subject="tiny on gpus",
            measured_factor=1.5,
            cluster_view={"nodes": []},
        ),
        id="plan",
    ),
]


@pytest.mark.parametrize(("field", "stored", "typed"), STORED)
def test_what_was_stored_as_a_document_is_read_and_written_alike(
    field: str, stored: Any, typed: Any
):
    job = from_json(ResolvedJob, json.dumps({"name": "digits", field: stored}))
    assert getattr(job, field) == typed
    assert json.loads(to_json(job))[field] == stored


def test_what_another_version_left_out_or_added_does_no_harm():
    stored = {"name": "digits", "checkpoint": {"colour": "green"}, "plan": {"id": "2f1c"}}
    job = from_json(ResolvedJob, json.dumps(stored))
    assert job.checkpoint == ResolvedCheckpoint()
    assert job.plan == ResolvedPlan(document={"id": "2f1c"}, id="2f1c")


@pytest.mark.parametrize(
    ("spec", "field", "stored"),
    [
        pytest.param(
            {"checkpoint": {"uri": "c"}},
            "checkpoint",
            {"uri": "c", "everySeconds": 600, "keep": 3, "resume": "latest"},
            id="the-default-interval",
        ),
        pytest.param(
            {"checkpoint": {"uri": "c", "everySeconds": 60.0, "progress": {}}},
            "checkpoint",
            {
                "uri": "c",
                "everySeconds": 60,
                "keep": 3,
                "resume": "latest",
                "progress": {"sections": {}},
            },
            id="a-whole-number",
        ),
        pytest.param(
            {"data": {"files": ["a"]}},
            "data",
            {"uri": None, "files": ["a"], "shard": None, "initialModel": None},
            id="data",
        ),
        pytest.param({"logs": {"patterns": [ROUNDS]}}, "log_patterns", [ROUNDS], id="patterns"),
    ],
)
def test_a_document_is_stored_with_its_defaults(spec: dict[str, Any], field: str, stored: Any):
    job = a_resolved_job("custom", {"worker": 1}, **spec)
    assert json.dumps(json.loads(to_json(job))[field]) == json.dumps(stored)
    assert from_json(ResolvedJob, to_json(job)) == job

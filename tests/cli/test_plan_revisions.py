"""A plain module that is trained by its plan while its cluster shrinks and grows: nobody's process is lost but the one that is killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.execution.adaptive import (
    BATCH,
    MODULE,
    assert_trained_as_on_one_device,
    losses,
    process_of,
    write_cluster,
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

STEPS = 200
"""So many that a fourth rank pays."""


def plain_job() -> dict[str, Any]:
    """Write a module that knows nothing of parallelism; return its job, whose split is the planner's."""
    Path("train.py").write_text(MODULE)
    write_cluster(Path("cluster.json"), 4)
    root = str(Path(__file__).resolve().parents[2])
    return {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "adaptive"},
        "spec": {
            "framework": "pytorch",
            "runtime": {"name": "local"},
            "reconcileSeconds": 1,
            "roles": [{"name": "master"}, {"name": "worker"}],
            "env": [
                {"name": "PYTHONPATH", "value": root},
                {"name": "OMP_NUM_THREADS", "value": "1"},
            ],
            # its place is gone: nothing comes back before the plan has changed
            "restart": {"scope": "Instance", "backoff": {"initialSeconds": 60}},
            "checkpoint": {"uri": "ckpt", "everySteps": 50},
            "output": {"uri": "trained"},
            "plan": {
                "model": "train:example",
                "cluster": "cluster.json",
                "globalBatch": BATCH,
                "constraints": {"tp": 1, "zero": 0},
                "apply": ["replicas", "env", "microBatch", "engine"],
                "engine": {"steps": STEPS, "precision": "fp64"},
            },
        },
    }


def test_ranks_follow_a_cluster_that_shrinks_and_grows_and_learn_what_one_device_learns(
    command: Callable[..., Any], background: Callable[..., Any], home: Path
) -> None:
    Path("job.yaml").write_text(yaml.safe_dump(plain_job()))
    run = background("run", "job.yaml", "--run-id", "one", "-o", "json")

    def step() -> int:
        return max(losses(home), default=0)

    def told(reason: str) -> list[dict[str, Any]]:
        events = json.loads(command("events", "one", "-o", "json").stdout)["events"]
        return [event["data"] for event in events if event["reason"] == reason]

    run.until(lambda: step() >= 6)
    survivors = {
        key: process_of(home, *key) for key in (("master", 0), ("worker", 0), ("worker", 2))
    }
    write_cluster(Path("cluster.json"), 3)
    os.kill(process_of(home, "worker", 1), signal.SIGKILL)
    run.until(lambda: len(told("Regrouped")) == 1)
    write_cluster(Path("cluster.json"), 4)
    run.until(lambda: len(told("Regrouped")) == 2)
    assert {key: process_of(home, *key) for key in survivors} == survivors
    run.until(lambda: step() >= STEPS)
    out, err = run.communicate()
    assert run.returncode == 0, err

    done = json.loads(out)
    assert sum(done["restarts"].values()) == 1, (
        "of the instance that was killed, and none for growth"
    )
    assert done["job_attempt"] == 0
    assert [each["revision"] for each in told("Replanned")] == [1, 2]
    shrunk, grown = told("Regrouped")
    assert (shrunk["ranks"], shrunk["lost_steps"], shrunk["revision"]) == (3, 0, 1)
    assert (grown["ranks"], grown["lost_steps"], grown["revision"]) == (4, 0, 2)
    assert (shrunk["moved_bytes"], shrunk["expected"]["lost_steps"]) == (0, 0)
    assert grown["moved_bytes"] > 0
    assert grown["moved_bytes"] == pytest.approx(grown["expected"]["moved_bytes"], rel=0.05)

    serial = assert_trained_as_on_one_device(Path("trained"), STEPS)
    found = losses(home)
    assert set(found) == set(range(1, STEPS + 1))
    for number, each in found.items():
        assert all(value == pytest.approx(serial[number - 1], rel=1e-10) for value in each), number
    shutil.rmtree("ckpt")

"""`submit` and `status --server` against a real Airflow."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.airflow.stack import PASSWORD, Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_job_on_a_remote_airflow(airflow: Airflow, tmp_path: Path):
    airflow.stack.wait_dag(airflow.client, "training_job")
    job = airflow.document(
        "remote", {"name": "worker", "replicas": 2}, command=["sh", "-c", "exit 4"]
    )
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job))

    def typed(*words: str) -> subprocess.CompletedProcess[str]:
        there = ("--server", airflow.stack.url, "--username", "admin", "-o", "json")
        done = subprocess.run(
            [Path(sys.executable).with_name("airflow-training"), *words, *there],
            cwd=tmp_path, env={**os.environ, "AIRFLOW_PASSWORD": PASSWORD}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        return done

    def answer(done: subprocess.CompletedProcess[str]) -> Any:
        return yaml.safe_load(done.stdout)

    good = ("--set", "spec.command=['true']", "--set", "spec.roles.worker.replicas=1")
    done = typed("submit", "job.yaml", "--run-id", "mine", *good)
    assert done.returncode == 0, done.stderr
    assert answer(done)["state"] == "success"
    assert answer(done)["status"]["state"] == "Succeeded"
    assert len(answer(done)["status"]["instances"]) == 1
    assert "rollup: success" in done.stderr
    assert answer(typed("status", "mine"))["run_id"] == "mine"

    failed = typed("submit", "job.yaml", "--set", "spec.restart.maxRestarts=0")
    assert failed.returncode == 1
    assert answer(failed)["status"]["root_cause"]["exit_code"] == 4

    taken = typed("submit", "job.yaml", "--run-id", "mine")
    assert (taken.returncode, taken.stdout) == (2, "")
    assert "--run-id" in taken.stderr
    unknown = typed("status", "nobody")
    assert (unknown.returncode, unknown.stdout) == (2, "")

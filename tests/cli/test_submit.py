"""`submit` and `status --server` against a real Airflow."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.cli.airflow_demo import DAG_FILE
from airflow_training.cli.airflow_stack import AirflowStack
from tests.cli.conftest import job_file


@pytest.mark.e2e
@pytest.mark.timeout(400)
def test_a_job_on_a_remote_airflow(command, tmp_path):
    with AirflowStack(home=tmp_path / "server") as stack:
        (stack.home / "jobs").mkdir()
        (stack.home / "dags" / "jobs.py").write_text(DAG_FILE)
        stack.migrate()
        stack.start()
        stack.wait_healthy()
        with stack.client() as client:
            stack.wait_dag(client, "training_job")
        there = ("--server", stack.url, "-o", "json")

        path = job_file(Path("job.yaml"), ("worker", 2), command=["sh", "-c", "exit 4"])
        good = ("--set", "spec.command=['true']", "--set", "spec.roles.worker.replicas=1")
        done = command("submit", str(path), "--run-id", "mine", *good, *there)
        assert done.code == 0, done.stderr
        assert done.json["state"] == "success"
        assert done.json["status"]["state"] == "Succeeded"
        assert len(done.json["status"]["instances"]) == 1
        assert "rollup: success" in done.stderr
        asked = command("status", "mine", *there)
        assert asked.json["run_id"] == "mine"

        failed = command("submit", str(path), "--set", "spec.restart.maxRestarts=0", *there)
        assert failed.code == 1
        assert failed.json["status"]["root_cause"]["exit_code"] == 4

        taken = command("submit", str(path), "--run-id", "mine", *there)
        assert (taken.code, taken.stdout) == (2, "")
        assert "--run-id" in taken.stderr
        unknown = command("status", "nobody", *there)
        assert (unknown.code, unknown.stdout) == (2, "")

"""A runtime that another package brings keeps the contract, and runs a job, without a line elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml

from airflow_training.documents.resolved import RunRef
from tests.contracts.runtime import JOB, Harness, RuntimeContract
from tests.contracts.spool.adapter import SPOOL, SpoolRuntime
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
COMMANDS: Mapping[Any, tuple[str, ...]] = {
    "sleeper": ("sleep", "1000"),
    "quick": ("true",),
    "broken": ("sh", "-c", "echo broken; exit 3"),
}


class TestSpool(RuntimeContract):
    @pytest.fixture
    async def harness(self, tmp_path: Path) -> AsyncIterator[Harness]:
        run = RunRef(uid=uuid4().hex[:20], job="contract", namespace="default", controller="tests")
        harness = Harness(runtime=SpoolRuntime(tmp_path), run=run, commands=COMMANDS)
        await harness.runtime.prepare(run, JOB)
        yield harness
        await harness.runtime.remove(harness.later(100))


@pytest.fixture
def installed(tmp_path: Path) -> dict[str, str]:
    """The environment of a process in which a package with the runtime is installed."""
    package = tmp_path / "site" / "spool-1.0.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: spool\nVersion: 1.0\n")
    entry = f"[airflow_training.runtimes]\nspool = {SPOOL.module}:SPOOL\n"
    (package / "entry_points.txt").write_text(entry)
    path = f"{package.parent}{os.pathsep}{ROOT}"
    return {**os.environ, "AIRFLOW_HOME": str(tmp_path / "home"), "PYTHONPATH": path}


def typed(env: Mapping[str, str], *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "airflow_training.cli", *map(str, words)]
    return subprocess.run(
        command, check=False, env=env, capture_output=True, text=True, timeout=PATIENCE
    )


def a_job(folder: Path, runtime: Any) -> Path:
    """Write a job of two roles: the worker waits for the master, and leaves something."""
    path = folder / "job.yaml"
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "spooled"},
        "spec": {
            "framework": "custom",
            "runtime": runtime,
            "command": ["sh", "-c", "echo done > $TRAINING_OUTPUT_DIR/$TRAINING_ROLE; nice"],
            "roles": [
                {"name": "master", "replicas": 1},
                {
                    "name": "worker",
                    "replicas": 2,
                    "dependsOn": [{"role": "master", "status": "Complete"}],
                },
            ],
        },
    }
    path.write_text(yaml.safe_dump(document))
    return path


def test_a_job_runs_on_it_from_the_command_line(installed, tmp_path):
    path = a_job(tmp_path, {"name": "spool", "options": {"nice": 3}})
    done = typed(installed, "run", path, "--run-id", "one", "-o", "json")
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["state"] == "Succeeded"
    assert {each["role"] for each in answer["instances"]} == {"master", "worker"}
    left = sorted(each.name for each in (tmp_path / "home").rglob("output/*"))
    assert left == ["master", "worker", "worker"]
    shown = typed(installed, "logs", "show", "one", "--role", "worker", "--index", "1")
    assert shown.stdout.split()[-1] == str(min(os.nice(0) + 3, 19))
    swept = typed(installed, "sweep", "-o", "json")
    assert swept.returncode == 0, swept.stderr


@pytest.mark.parametrize(
    ("runtime", "code", "field", "said"),
    [
        ({"name": "spol"}, "not_allowed", "spec.runtime.name", "did you mean 'spool'?"),
        ({"name": "spool", "options": {"nise": 3}}, "unknown_key", "spec.runtime.options.nise", "nice"),
        ({"name": "spool", "options": {"nice": 30}}, "out_of_range", "spec.runtime.options.nice", "19"),
        ({"name": "local", "options": {"nice": 3}}, "unknown_key", "spec.runtime.options.nice", "no options"),
    ],
    ids=["name", "key", "value", "of-another-runtime"],
)  # fmt: skip
def test_what_a_document_says_of_it_is_checked(installed, tmp_path, runtime, code, field, said):
    done = typed(installed, "validate", a_job(tmp_path, runtime), "-o", "json")
    assert done.returncode == 2, done.stdout
    (problem,) = json.loads(done.stdout)["files"][0]["errors"]
    assert (problem["code"], problem["field"]) == (code, field)
    assert said in json.dumps(problem)


def test_frameworks_give_it_what_they_give_this_machine(installed, tmp_path):
    document = yaml.safe_load(a_job(tmp_path, {}).read_text())
    document["spec"] |= {
        "framework": "mpi",
        "roles": [{"name": "launcher"}, {"name": "worker", "replicas": 2}],
    }
    path = tmp_path / "mpi.yaml"
    path.write_text(yaml.safe_dump(document))
    explained = {}
    for runtime in ("spool", "local"):
        done = typed(installed, "explain", path, "--runtime", runtime, "-o", "json")
        assert done.returncode == 0, done.stderr
        explained[runtime] = json.loads(done.stdout)["instances"]
    assert explained["spool"] == explained["local"]
    assert "TRAINING_REMOTE_SHELL" in explained["spool"][0]["env"]["OMPI_MCA_plm_rsh_agent"]


def test_the_schema_lists_it(installed):
    schema = json.loads(typed(installed, "schema").stdout)
    assert "spool" in json.dumps(schema["$defs"]["RuntimeChoice"]["properties"]["name"])
    assert "together" in schema["$defs"]["SchedulingPolicy"]["properties"]["gang"]["enum"]

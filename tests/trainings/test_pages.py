"""The example on the page of each framework, run as a reader would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml

from airflow_training.frameworks.registry import builtin_names
from tests.docs.pages import ROOT, blocks_of
from tests.trainings.jobs import ENVIRONMENTS
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

OURS = {"custom": "json", "lightgbm": "lightgbm", "pytorch": "torch", "xgboost": "xgboost"}
"""What our own environment has, and a module of it."""
ENVIRONMENT = {"mpi": "mpich"}
"""Where it is not called like the framework."""


def with_marks(name: str) -> object:
    if name in OURS:
        missing = find_spec(OURS[name]) is None
        return pytest.param(name, marks=pytest.mark.skipif(missing, reason=f"no {OURS[name]}"))
    missing = not (ENVIRONMENTS / ENVIRONMENT.get(name, name)).exists()
    why = "`make frameworks` brings it"
    return pytest.param(
        name, marks=[pytest.mark.frameworks, pytest.mark.skipif(missing, reason=why)]
    )


@pytest.mark.parametrize("name", [with_marks(each) for each in sorted(builtin_names())])
def test_the_example_of_a_page_trains(name, tmp_path):
    for block in blocks_of(ROOT / "docs" / "frameworks" / f"{name}.md"):
        if block.file:
            (tmp_path / block.file).write_text(block.text)
    job = tmp_path / f"{name}.yaml"
    document = yaml.safe_load(job.read_text())
    if name not in OURS:
        programs = ENVIRONMENTS / ENVIRONMENT.get(name, name) / "bin"
        spec = document["spec"]
        spec["command"] = [str(programs / w) if w == "python" else w for w in spec["command"]]
        path = f"{programs}:{os.environ['PATH']}"
        document["spec"]["env"] = [{"name": "PATH", "value": path}]
        job.write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [
            sys.executable, "-c", "from airflow_training.cli.main import main; main()",
            "run", job.name, "--run-id", "first", "--output", "json",
        ],
        cwd=tmp_path,
        env={**os.environ, "AIRFLOW_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
        check=False,
    )  # fmt: skip
    logs = "".join(each.read_text() for each in tmp_path.glob("home/training/*/*/attempt-*/log"))
    assert done.returncode == 0, done.stdout + done.stderr + logs
    status = json.loads(done.stdout)
    assert status["state"] == "Succeeded"
    assert sum(status["restarts"].values()) == 0, logs
    assert output(tmp_path / document["spec"]["output"]["uri"]), logs


def output(folder: Path) -> list[str]:
    """Return the files that a training has left, none of them empty."""
    return [each.name for each in folder.iterdir() if each.stat().st_size]

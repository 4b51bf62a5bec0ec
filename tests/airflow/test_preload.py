"""What Airflow's components import before they fork, so that no task has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from airflow_training.preload import is_forking
from tests.airflow.jobs import shell

_START = """
import os, sys
home, path = sys.argv[1:3]
os.environ["AIRFLOW_HOME"] = home
os.environ["AIRFLOW__TRAINING__ALLOW_LOCAL"] = "True"
sys.argv = sys.argv[3:]

from airflow.jobs.job import Job
Job()  # what the scheduler, the triggerer and the DAG processor make when they start
before = set(sys.modules)
"""

_ALL_TASKS = """
import contextlib, importlib
from types import SimpleNamespace
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.compiler.loader import load_file

dag = load_file(path)["hello"]
ti = SimpleNamespace(task_id="t", dag_id="hello", run_id="r", map_index=-1, try_number=1)
context = {"ti": ti, "run_id": "r", "params": {}, "outlet_events": {}}
dag.get_task("plan").execute(context)
with contextlib.suppress(AirflowFailException):  # nobody drove the run, so rollup stops it
    dag.get_task("rollup").execute(context)
dag.get_task("cleanup").execute(context)
for task in dag.tasks:
    if task.start_trigger_args:
        importlib.import_module(task.start_trigger_args.trigger_cls.rpartition(".")[0])
print(sorted(name for name in set(sys.modules) - before if name.startswith("airflow_training")))
"""

_NOTHING = """
assert "airflow_training.plugin" in before
print(sorted(name for name in before if name.startswith("airflow_training.state")))
"""


@pytest.mark.parametrize(
    ("command", "script"),
    [
        pytest.param(["bin/airflow", "scheduler"], _ALL_TASKS, id="tasks-find-it-all-there"),
        pytest.param(["bin/airflow", "api-server"], _NOTHING, id="other-components-pay-nothing"),
    ],
)
def test_nothing_is_imported_that_need_not_be(command: list[str], script: str, tmp_path: Path):
    path = tmp_path / "hello.yaml"
    path.write_text(yaml.safe_dump(shell("hello", "sleep 60")))
    done = subprocess.run(
        [sys.executable, "-c", _START + script, str(tmp_path), str(path), *command],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (["/opt/airflow/bin/airflow", "scheduler"], True),
        (["/venv/bin/airflow", "triggerer", "--capacity", "100"], True),
        (["/venv/lib/python3.11/site-packages/airflow/__main__.py", "dag-processor"], True),
        (["/venv/bin/airflow", "api-server"], False),
        (["/venv/bin/airflow"], False),
        (["/venv/bin/pytest", "scheduler"], False),
    ],
)
def test_only_components_that_fork_import_early(command: list[str], expected: bool):
    assert is_forking(command) is expected

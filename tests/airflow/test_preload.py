"""What Airflow's components import before they fork, so that no task has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.airflow.jobs import shell

_HOME = """
import os, sys
os.environ["AIRFLOW_HOME"] = sys.argv[1]
os.environ["AIRFLOW__TRAINING__ALLOW_LOCAL"] = "True"
"""

_ALL_TASKS = """
import contextlib, importlib
from types import SimpleNamespace
from airflow.jobs.job import Job
from airflow.sdk.exceptions import AirflowFailException

Job()  # what the scheduler, the triggerer and the DAG processor make when they start
before = set(sys.modules)

from airflow_training.compiler.loader import load_file

dag = load_file(sys.argv[2])["hello"]
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

_ONE_TASK = """
from airflow.sdk.execution_time.task_runner import TaskRunnerMarker
from airflow.sdk.listener import get_listener_manager

get_listener_manager().hook.on_starting(component=TaskRunnerMarker())
assert "airflow_training.preload" in sys.modules
print(sorted(name for name in sys.modules if name.startswith("airflow_training.state")))
"""


@pytest.mark.parametrize(
    "script",
    [
        pytest.param(_ALL_TASKS, id="a-component-has-what-all-tasks-need"),
        pytest.param(_ONE_TASK, id="a-task-imports-only-what-it-needs-itself"),
    ],
)
def test_nothing_is_imported_that_need_not_be(script: str, tmp_path: Path):
    path = tmp_path / "hello.yaml"
    path.write_text(yaml.safe_dump(shell("hello", "sleep 60")))
    done = subprocess.run(
        [sys.executable, "-c", _HOME + script, str(tmp_path), str(path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"

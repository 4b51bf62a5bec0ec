"""What Airflow's components import before they fork, so that no task has to."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from airflow_training.preload import component
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
ti = SimpleNamespace(
    task_id="t", dag_id="hello", run_id="r", map_index=-1, try_number=1, xcom_push=lambda **_: None
)
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


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("command", "script"),
    [
        pytest.param(["bin/airflow", "scheduler"], _ALL_TASKS, id="tasks-find-it-all-there"),
        pytest.param(
            ["bin/airflow", "api-server"],
            _NOTHING,
            id="other-components-pay-nothing",
            marks=pytest.mark.soak,
        ),
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
        (["/opt/airflow/bin/airflow", "scheduler"], "scheduler"),
        (["/venv/bin/airflow", "triggerer", "--capacity", "100"], "triggerer"),
        (
            ["/venv/lib/python3.11/site-packages/airflow/__main__.py", "dag-processor"],
            "dag-processor",
        ),
        (["/venv/bin/airflow"], ""),
        (["/venv/bin/pytest", "scheduler"], ""),
    ],
)
def test_a_component_is_known_by_its_command(command: list[str], expected: str):
    assert component(command) == expected


_END_FROM_TRIGGER = """
from datetime import timedelta
from airflow.dag_processing.dagbag import DagBag
from airflow.providers.standard.sensors.time_delta import TimeDeltaSensor
from airflow.sdk import DAG

with DAG("theirs") as dag:
    TimeDeltaSensor(task_id="wait", delta=timedelta(1), deferrable=True, end_from_trigger=True)
DagBag(dag_folder=home, collect_dags=False).bag_dag(dag)
"""


@pytest.mark.e2e
def test_dags_with_tasks_that_end_in_the_triggerer_still_load(tmp_path: Path):
    """Airflow refuses them wherever a plugin has registered a listener."""
    command = [sys.executable, "-c", _START + _END_FROM_TRIGGER]
    parsing = [*command, str(tmp_path), "-", "bin/airflow", "dag-processor"]
    done = subprocess.run(parsing, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    scheduling = [*parsing[:-1], "scheduler"]
    done = subprocess.run(scheduling, capture_output=True, text=True, check=False)
    assert "Listeners are not supported" in done.stderr  # the scheduler parses nothing

"""Job files as DAGs, against the same DAGs written by hand and against dag-factory.

Each way is measured in a process of its own: importing Airflow is paid before the clock starts,
and nothing cached by one way helps another. Building the DAG objects is timed, not storing them.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.report import figure, heading, median

DAGS = 1_000
ROUNDS = 3

JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{name: job{number}}}
spec:
  framework: pytorch
  image: ghcr.io/acme/digits:1.4
  command: [python, train.py, --lr, "{{{{ params.lr }}}}"]
  roles:
    - {{name: master, replicas: 1}}
    - {{name: worker, replicas: 3}}
  dag: {{schedule: "@weekly", params: {{lr: {{type: number, default: 0.1, minimum: 0}}}}}}
"""

# The same seven tasks, with the plain operators a person would take.
BY_HAND = """\
from airflow.providers.standard.operators.bash import BashOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Param, TaskGroup

with DAG("job{number}", schedule="@weekly", catchup=False,
         params={{"lr": Param(0.1, type="number", minimum=0)}}) as dag_{number}:
    with TaskGroup("job{number}"):
        plan = BashOperator(task_id="plan", bash_command="true")
        reconcile = BashOperator(task_id="reconcile", bash_command="true")
        with TaskGroup("master"):
            master = BashOperator(task_id="run", bash_command="true")
        with TaskGroup("worker"):
            wait = BashOperator(task_id="await_master", bash_command="true")
            worker = BashOperator(task_id="run", bash_command="true")
        rollup = EmptyOperator(task_id="rollup").as_teardown(on_failure_fail_dagrun=True)
        cleanup = EmptyOperator(task_id="cleanup").as_teardown()
        plan >> [reconcile, master, wait]
        wait >> worker
        [reconcile, master, worker] >> rollup >> cleanup
"""

FACTORY = """\
job{number}:
  default_args: {{start_date: 2026-01-01}}
  schedule: "@weekly"
  catchup: false
  task_groups:
    master: {{tooltip: master}}
    worker: {{tooltip: worker}}
  tasks:
    plan: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true"}}
    reconcile: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", dependencies: [plan]}}
    master_run: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: master, dependencies: [plan]}}
    await_master: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: worker, dependencies: [plan]}}
    worker_run: {{operator: airflow.providers.standard.operators.bash.BashOperator, bash_command: "true", task_group_name: worker, dependencies: [await_master]}}
    rollup: {{operator: airflow.providers.standard.operators.empty.EmptyOperator, dependencies: [reconcile, master_run, worker_run]}}
    cleanup: {{operator: airflow.providers.standard.operators.empty.EmptyOperator, dependencies: [rollup]}}
"""


def execute(path: Path) -> None:
    """Run a DAG file as Airflow does: compile and execute it as a module."""
    spec = importlib.util.spec_from_file_location(f"bench_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


def ours(folder: Path) -> None:
    from airflow_training.compiler.loader import load_folder

    assert len(load_folder(folder)) in {1, DAGS}


def one_of_ours(folder: Path) -> None:
    from airflow_training.compiler.loader import load_file

    assert len(load_file(folder / "job7.yaml")) == 1


def by_hand(folder: Path) -> None:
    for path in sorted(folder.glob("*.py")):
        execute(path)


def one_by_hand(folder: Path) -> None:
    execute(folder / "job7.py")


def factory(folder: Path) -> None:
    from dagfactory import load_yaml_dags

    found: dict[str, object] = {}
    load_yaml_dags(found, dags_folder=str(folder))
    assert len(found) == DAGS


WAYS: dict[str, tuple[Callable[[Path], None], str, str]] = {
    "ours": (ours, "yaml", JOB),
    "one of ours": (one_of_ours, "yaml", JOB),
    "by hand": (by_hand, "py", BY_HAND),
    "one by hand": (one_by_hand, "py", BY_HAND),
    "dag-factory": (factory, "yaml", FACTORY),
}


def time_one(way: str, folder: Path) -> float:
    """Return the seconds of one way in this process; the first DAG pays for imports untimed."""
    action, suffix, text = WAYS[way]
    warm = folder / "warm"
    warm.mkdir()
    (warm / f"job7.{suffix}").write_text(text.format(number=7))
    if way == "dag-factory":
        from dagfactory import load_yaml_dags

        load_yaml_dags({}, dags_folder=str(warm))
    else:
        action(warm)
    start = time.perf_counter()
    action(folder / "many")
    return time.perf_counter() - start


def measure(way: str) -> float:
    """Return the seconds of one way, in a process and an Airflow home of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _, suffix, text = WAYS[way]
        (folder / "many").mkdir()
        for number in range(DAGS):
            (folder / "many" / f"job{number}.{suffix}").write_text(text.format(number=number))
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.dag_parsing", way, name],
            env={
                **os.environ,
                "AIRFLOW_HOME": name,
                "DO_NOT_TRACK": "1",
                "PYTHONDONTWRITEBYTECODE": "1",
                "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            },
            check=False,
            capture_output=True,
            text=True,
        )
    if done.returncode:
        raise RuntimeError(f"{way}: {textwrap.shorten(done.stderr[-800:], 800)}")
    return float(done.stdout.split()[-1])


def main() -> None:
    heading(f"Parsing {DAGS} DAGs of 7 tasks")
    ways = [way for way in WAYS if way != "dag-factory" or importlib.util.find_spec("dagfactory")]
    rows = [{way: measure(way) for way in ways} for _ in range(ROUNDS)]
    for way in ways:
        figure(way, median([row[way] for row in rows]), "s")
    ratio = median([row["ours"] / row["by hand"] for row in rows])
    figure("ours / by hand", ratio, "x", target="<= 1.3")
    single = median([row["one of ours"] / row["one by hand"] for row in rows])
    figure("ours / by hand, for one task of one DAG", single, "x", target="<= 1.2")
    if "dag-factory" in ways:
        figure("ours / dag-factory", median([r["ours"] / r["dag-factory"] for r in rows]), "x")
    else:
        print("| dag-factory | not installed: `make bench` installs it | | |")


if __name__ == "__main__":
    print(time_one(sys.argv[1], Path(sys.argv[2])))

"""How soon training starts when a DAG run does, and what Airflow adds to a whole job.

Peers: a DAG of two trivial tasks; one whose second task only starts in the triggerer, which is where
`reconcile` has to start; and one whose task in the triggerer ends while it runs, with two trivial tasks
side by side behind it, as `rollup` and `cleanup` are behind `reconcile`.
"""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.control.usage import AttemptUsage
from airflow_training.state.store import Store
from benchmarks.report import figure, heading, median

ROUNDS = 7
ROOT = Path(__file__).parent.parent
DIGITS = ROOT / "dags" / "examples" / "digits"
PEERS = ("plain", "trigger", "task_then_trigger", "trigger_then_tasks")
LASTING_SECONDS = 4.0
"""Long enough for the triggerer to have taken the run up before its instances end."""
STEPS = (
    ("run over in the store", "ours"),
    ("triggerer reports it: end of reconcile and roles", "Airflow's"),
    ("rollup and cleanup start", "Airflow's"),
    ("rollup and cleanup end", "both"),
    ("DAG run over", "Airflow's"),
)

DAGS = f"""
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from airflow_training.compiler.loader import load_folder
from airflow_training.settings import load_settings
from benchmarks.empty_trigger import StartsAtOnce


def nothing():
    pass


with DAG("plain", schedule=None):
    first = PythonOperator(task_id="first", python_callable=nothing)
    second = PythonOperator(task_id="second", python_callable=nothing)
    first >> second
with DAG("trigger", schedule=None):
    StartsAtOnce(task_id="trigger")
with DAG("task_then_trigger", schedule=None):
    PythonOperator(task_id="first", python_callable=nothing) >> StartsAtOnce(task_id="trigger")
with DAG("trigger_then_tasks", schedule=None):
    trigger = StartsAtOnce(task_id="trigger", seconds={LASTING_SECONDS})
    for number in (1, 2):
        trigger >> PythonOperator(task_id=f"task{{number}}", python_callable=nothing)
globals().update(load_folder(load_settings().jobs_folder))
"""

JOB = f"""
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {{{{name: {{name}}}}}}
spec:
  framework: custom
  command: [{sys.executable}, -S, -c, "import time; time.sleep({{seconds}})"]
  roles:
    - {{{{name: master}}}}
    - {{{{name: worker, replicas: 2}}}}
"""
JOBS = {"quick": 0.0, "lasting": LASTING_SECONDS}


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def run_dag(client: httpx.Client, dag_id: str, *, phase: float = 0.0) -> dict[str, Any]:
    """Trigger a DAG and return its run once it has ended well.

    `phase`: seconds to wait first. The triggerer works once a second, and a run that ends with it
    would let the next one begin at the same point of that second each time.
    """
    time.sleep(phase)
    answer = client.post(f"/dags/{dag_id}/dagRuns", json={"logical_date": None, "conf": {}})
    run_id = answer.raise_for_status().json()["dag_run_id"]
    while True:
        run: dict[str, Any] = client.get(f"/dags/{dag_id}/dagRuns/{run_id}").json()
        if run["state"] == "success":
            return run
        if run["state"] == "failed":
            raise RuntimeError(f"{dag_id} {run_id} failed")
        time.sleep(0.2)


def first_instance_seconds(store: Store, run: dict[str, Any]) -> float:
    """Return seconds from the start of the DAG run to the first instance running."""
    return min(_first_of_each_role(store, run).values()) - seconds(run["start_date"])


def last_instance_seconds(store: Store, run: dict[str, Any]) -> float:
    """Return seconds from the end of the last instance to the end of the DAG run."""
    usage = store.usage.of_run(store.find_run(run["dag_run_id"]).uid)
    return seconds(run["end_date"]) - max(_end(each) for each in usage)


def dependent_role_seconds(store: Store, run: dict[str, Any]) -> tuple[float, float]:
    """Return when `worker`, which waits for `master`, starts: after it, and after the DAG run does."""
    started = _first_of_each_role(store, run)
    return started["worker"] - started["master"], started["worker"] - seconds(run["start_date"])


def _first_of_each_role(store: Store, run: dict[str, Any]) -> dict[str, float]:
    usage = store.usage.of_run(store.find_run(run["dag_run_id"]).uid)
    started: dict[str, float] = {}
    for each in usage:
        started[each.role] = min(each.started_at, started.get(each.role, each.started_at))
    return started


def _end(usage: AttemptUsage) -> float:
    assert usage.finished_at is not None, "the run has ended"
    return usage.finished_at


def steps_to_the_end(client: httpx.Client, store: Store, run: dict[str, Any]) -> list[float]:
    """Return how long each of STEPS took, from the end of the last instance to that of the run."""
    record = store.find_run(run["dag_run_id"])
    at = [max(map(_end, store.usage.of_run(record.uid))), record.finished_at or 0]
    path = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances"
    tasks = client.get(path).raise_for_status().json()["task_instances"]
    last = [task for task in tasks if task["task_id"] in ("rollup", "cleanup")]
    at.append(max(seconds(task["end_date"]) for task in tasks if task not in last))
    at += [max(seconds(task[key]) for task in last) for key in ("start_date", "end_date")]
    at.append(seconds(run["end_date"]))
    return [after - before for before, after in itertools.pairwise(at)]


def second_task_seconds(client: httpx.Client, run: dict[str, Any]) -> float:
    """Return seconds from the start of the DAG run to the end of its second task."""
    path = f"/dags/plain/dagRuns/{run['dag_run_id']}/taskInstances/second"
    return seconds(client.get(path).json()["end_date"]) - seconds(run["start_date"])


def trigger_seconds(client: httpx.Client, run: dict[str, Any]) -> float:
    """Return seconds from the start of the DAG run to the first statement of its empty trigger."""
    path = f"/dags/{run['dag_id']}/dagRuns/{run['dag_run_id']}/taskInstances/trigger"
    answer = client.get(f"{path}/xcomEntries/return_value").raise_for_status()
    return float(answer.json()["value"]) - seconds(run["start_date"])


def main() -> None:
    heading("Airflow: start of a DAG run to training, and overhead of a whole job")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        (home / "dags").mkdir()
        (home / "dags" / "bench.py").write_text(DAGS)
        (home / "jobs").mkdir()
        for name, lasts in JOBS.items():
            (home / "jobs" / f"{name}.yaml").write_text(JOB.format(name=name, seconds=lasts))
        shutil.copytree(DIGITS, home / "jobs" / "digits")
        # the triggerer imports the empty trigger from here
        with AirflowStack(home=home, environment={"PYTHONPATH": str(ROOT)}) as stack:
            stack.migrate()
            stack.start()
            stack.wait_healthy()
            store = Store(f"sqlite:///{home / 'airflow_training.db'}")
            with stack.client() as client:
                for dag_id in (*PEERS, *JOBS, "digits"):
                    stack.wait_dag(client, dag_id)
                    run_dag(client, dag_id)  # warm
                plain, trigger, task_then_trigger, ours = [], [], [], []
                ends, steps, peer_ends = [], [], []
                for number in range(ROUNDS):
                    phase = number / ROUNDS
                    plain.append(second_task_seconds(client, run_dag(client, "plain")))
                    run = run_dag(client, "trigger", phase=phase)
                    trigger.append(trigger_seconds(client, run))
                    run = run_dag(client, "task_then_trigger", phase=phase)
                    task_then_trigger.append(trigger_seconds(client, run))
                    run = run_dag(client, "quick", phase=phase)
                    ours.append(first_instance_seconds(store, run))
                    run = run_dag(client, "lasting", phase=phase)
                    ends.append(last_instance_seconds(store, run))
                    steps.append(steps_to_the_end(client, store, run))
                    run = run_dag(client, "trigger_then_tasks", phase=phase)
                    fired_at = seconds(run["start_date"]) + trigger_seconds(client, run)
                    peer_ends.append(seconds(run["end_date"]) - fired_at)
                whole, behind = [], []
                for _ in range(3):
                    run = run_dag(client, "digits")
                    behind.append(dependent_role_seconds(store, run))
                    whole.append(seconds(run["end_date"]) - seconds(run["start_date"]))
                store.close()
        alone = []
        for _ in range(3):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "airflow_training.cli", "run", "digits.yaml"],
                cwd=DIGITS,
                env={**os.environ, "AIRFLOW_HOME": folder},
                check=True,
                capture_output=True,
            )
            alone.append(time.perf_counter() - start)
    figure("DAG of two trivial tasks, start to end of the second", median(plain), "s")
    figure("training DAG, start to first instance running", median(ours), "s")
    figure("ratio", median(ours) / median(plain), "x", target="<= 2")
    figure("empty trigger alone, start to its first statement", median(trigger), "s")
    figure("empty trigger behind a trivial task", median(task_then_trigger), "s")
    figure("ratio to that one", median(ours) / median(task_then_trigger), "x")
    figure(
        "training DAG, end of the last instance to its own end", median(ends), "s", target="<= 1"
    )
    for (name, whose), taken in zip(STEPS, zip(*steps, strict=True), strict=True):
        figure(f"- {name} ({whose})", median(taken), "s")
    figure("empty trigger that ends and two tasks side by side, to the end", median(peer_ends), "s")
    figure("ratio to that one", median(ends) / median(peer_ends), "x")
    after_its_dependency, after_the_start = zip(*behind, strict=True)
    figure("a role behind a sensor, after its dependency", median(after_its_dependency), "s")
    figure("the same, after the start of the DAG run", median(after_the_start), "s")
    figure("digits job as a DAG, whole run", median(whole), "s")
    figure("digits job with `airflow-training run`", median(alone), "s")
    figure("what Airflow adds to it", median(whole) - median(alone), "s")

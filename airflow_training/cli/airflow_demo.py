"""`airflow-training demo`: a real training job as a DAG in a real Airflow, from nothing to the result."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from airflow_training.cli.airflow_stack import AirflowStack, StackError
from airflow_training.control.rollup import rollup
from airflow_training.errors import InputError, JobFailed
from airflow_training.state.store import RunState, Store

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits"
DAG_ID = "digits"
DAG_FILE = '''"""Every job file in the jobs folder of this home becomes a DAG."""

from airflow_training.compiler.loader import load_jobs

globals().update(load_jobs())
'''


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    accuracy: float
    model: Path
    dag_run_url: str


def prepare(home: Path) -> None:
    """Put the example job and the DAG file that loads it into the demo's Airflow home."""
    shutil.copytree(EXAMPLE, home / "jobs" / "digits", dirs_exist_ok=True)
    (home / "dags").mkdir(parents=True, exist_ok=True)
    (home / "dags" / "jobs.py").write_text(DAG_FILE)


def run_demo(stack: AirflowStack, console: Console) -> DemoResult:
    """Start Airflow, trigger the DAG over REST, follow it; raises JobFailed or StackError."""
    home = stack.home
    prepare(home)
    with console.status("preparing Airflow's database"):
        stack.migrate()
    with console.status("starting Airflow (api-server, scheduler, dag-processor, triggerer)"):
        stack.start()
        stack.wait_healthy()
    console.print(f"Airflow runs at {stack.url}")
    with stack.client() as client:
        with console.status(f"waiting for the DAG of {EXAMPLE.name}/digits.yaml"):
            stack.wait_dag(client, DAG_ID)
        answer = client.post(f"/dags/{DAG_ID}/dagRuns", json={"logical_date": None, "conf": {}})
        run_id = answer.raise_for_status().json()["dag_run_id"]
        url = f"{stack.url}/dags/{DAG_ID}/runs/{run_id}"
        console.print(f"triggered DAG {DAG_ID}: {url}")
        state = follow(Store(f"sqlite:///{home / 'airflow_training.db'}"), run_id, console)
        dag_state = wait_dag_run(client, run_id)
    if state.ledger.job.state != "Succeeded" or dag_state != "success":
        raise JobFailed(
            f"job {state.ledger.job.state}: {state.ledger.job.message}; DAG run {dag_state}: {url}"
        )
    model = model_path(home, state)
    metrics = newest_metrics(state)
    return DemoResult(accuracy=metrics["accuracy"], model=model, dag_run_url=url)

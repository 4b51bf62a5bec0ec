"""The bundled example as a DAG in a real Airflow: start, trigger over REST, follow, read the result."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
from rich.console import Console
from rich.live import Live
from rich.text import Text

from airflow_training.cli.airflow_stack import AirflowStack
from airflow_training.cli.output import table_lines
from airflow_training.control.model import Ledger
from airflow_training.control.reports import ProgressReport
from airflow_training.documents import TrainingJob
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError, JobFailed
from airflow_training.state.store import RunState, Store

__all__ = ["DemoResult", "picture", "run_demo"]

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "digits"
DAG_ID = "digits"
DAG_FILE = '''"""The DAG (airflow) that runs any job; files of the jobs folder are DAGs by themselves."""

from airflow_training.compiler.generic import generic_dag

dag = generic_dag()
'''
_POLL_SECONDS = 0.5
_END_SECONDS = 120.0
"""How long rollup and cleanup may take once the job itself has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    accuracy: float
    """Share of held-out images whose digit was found, 0 to 1."""
    model: Path
    run_url: str
    """The run in Airflow's UI, as long as this Airflow runs."""


def run_demo(stack: AirflowStack, console: Console) -> DemoResult:
    """Start Airflow, trigger the DAG over REST, follow it; raises JobFailed or StackError."""
    _prepare(stack.home)
    with console.status("preparing Airflow's database"):
        stack.migrate()
    with console.status("starting Airflow: api-server, scheduler, dag-processor, triggerer"):
        stack.start()
        stack.wait_healthy()
    console.print(f"Airflow runs at {stack.url}")
    with stack.client() as client:
        with console.status(f"waiting for the DAG of {DAG_ID}.yaml"):
            stack.wait_dag(client, DAG_ID)
        answer = client.post(f"/dags/{DAG_ID}/dagRuns", json={"logical_date": None, "conf": {}})
        run_id = answer.raise_for_status().json()["dag_run_id"]
        url = f"{stack.url}/dags/{DAG_ID}/runs/{run_id}"
        console.print(f"triggered DAG {DAG_ID}, run {run_id}")
        store = Store(f"sqlite:///{stack.home / 'airflow_training.db'}")
        try:
            dag_state = _follow(client, store, run_id, console)
            if not console.is_terminal:
                console.line()  # rich ends its last picture without one where nobody watches
            return _result(store, run_id, dag_state=dag_state, url=url)
        finally:
            store.close()


def _prepare(home: Path) -> None:
    """Put the example job, with a place for its model, and the file that loads it into the home."""
    folder = home / "jobs" / "digits"
    shutil.copytree(EXAMPLE, folder, dirs_exist_ok=True)
    job = TrainingJob.from_file(folder / "digits.yaml").to_dict()
    job["spec"]["output"] = {"uri": f"file://{home}/models/digits/{{{{ run_id }}}}"}
    (folder / "digits.yaml").write_text(TrainingJob.model_validate(job).to_yaml())
    (home / "dags").mkdir(parents=True, exist_ok=True)
    (home / "dags" / "jobs.py").write_text(DAG_FILE)


def _follow(client: httpx.Client, store: Store, run_id: str, console: Console) -> str:
    """Show the run until its DAG run has ended; return the DAG run's state."""
    deadline = None
    with Live(console=console, auto_refresh=False) as live:
        while True:
            dag_run = client.get(f"/dags/{DAG_ID}/dagRuns/{run_id}").raise_for_status().json()
            state = _state(store, run_id)
            if state is not None:
                progress = store.progress.newest(state.record.uid)
                lines = picture(
                    state.record.job, state.ledger, progress, dag_run["state"], width=console.width
                )
                live.update(Text("\n".join(lines)), refresh=True)
                if deadline is None and state.record.finished_at is not None:
                    deadline = time.monotonic() + _END_SECONDS
            if dag_run["state"] in {"success", "failed"}:
                return str(dag_run["state"])
            if deadline is not None and time.monotonic() > deadline:
                raise JobFailed(f"the job has ended, but its DAG run is still {dag_run['state']}")
            time.sleep(_POLL_SECONDS)


def _state(store: Store, run_id: str) -> RunState | None:
    """Return the run's state; None before `plan` has created it."""
    with contextlib.suppress(InputError):
        uid = store.find_run(run_id).uid
        return store.read([uid]).get(uid)
    return None


def picture(
    name: str,
    ledger: Ledger,
    progress: Mapping[InstanceKey, ProgressReport],
    dag_state: str,
    *,
    width: int,
) -> list[str]:
    """Return the run as lines of at most so many columns."""
    rows = []
    for key, entry in sorted(ledger.instances.items()):
        said = progress.get(key, ProgressReport())
        step = f"{said.step} / {said.total_steps or '?'}" if said.step else ""
        loss = said.metrics.get("loss")
        rows.append([str(key), entry.state, entry.attempt, entry.address, step, loss])
    return [
        f"{name}: {ledger.job.state}   (DAG run: {dag_state})",
        *table_lines(
            ["instance", "state", "attempt", "address", "step", "loss"], rows, width=width
        ),
    ]


def _result(store: Store, run_id: str, *, dag_state: str, url: str) -> DemoResult:
    state = _state(store, run_id)
    if state is None or dag_state != "success" or state.ledger.job.state != "Succeeded":
        job = state.ledger.job if state is not None else None
        told = f"{job.state}: {job.reason} {job.message}" if job is not None else "never planned"
        raise JobFailed(f"DAG run {dag_state}, job {told}; see {url}")
    output = store.output(state.record.uid)
    model = Path(output.uri.removeprefix("file://") if output else "")
    metrics = json.loads((model / "metrics.json").read_text())
    return DemoResult(accuracy=metrics["accuracy"], model=model / "model.pt", run_url=url)

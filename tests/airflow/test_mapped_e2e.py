"""Many runs of one job in a DAG run, a few tasks at a time, on a real Airflow: all of them, and all stopped at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence

import pytest

from airflow_training.state.store import RunRecord
from tests.airflow.stack import Airflow
from tests.waiting import PATIENCE, wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1200)]

RUNS = int(os.environ.get("MAPPED_RUNS", "8"))
DAGS = '''
"""Many runs of one job, two tasks of a kind at a time (airflow dag)."""
from airflow.sdk import DAG
from airflow_training import training

for name in ("counts", "lasts"):
    with DAG(f"many-{name}", schedule=None) as dag:
        training.partial(
            f"../mapped-jobs/{name}.yaml",
            group_id="each",
            default_args={"max_active_tis_per_dagrun": 2},
        ).expand(params=[{"n": n} for n in range(RUNS)])
    globals()[f"many_{name}"] = dag
'''


@pytest.fixture(scope="module")
def many(airflow: Airflow) -> Airflow:
    """Add the DAGs."""
    params = {"n": {"type": "integer"}}
    for name, script in (("counts", "echo {{ params.n }}"), ("lasts", "sleep 3600")):
        command = ["sh", "-c", script]
        document = airflow.document(name, command=command, dag={"params": params})
        airflow.write(document, folder="mapped-jobs")
    code = DAGS.replace("RUNS", str(RUNS))
    (airflow.stack.home / "dags" / "many.py").write_text(code)
    return airflow


def runs_of(airflow: Airflow, dag_id: str, run_id: str) -> Sequence[RunRecord]:
    return airflow.store.runs(limit=1000, dag_ids=[dag_id], run_id=run_id)


def states_of_plans(airflow: Airflow, dag_id: str, run_id: str) -> list[str]:
    path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/each.plan/listMapped"
    answer = airflow.client.get(path, params={"limit": 100})
    return [each["state"] for each in answer.json()["task_instances"]]


def test_all_of_many_succeed_though_few_tasks_may_begin_at_a_time(many: Airflow):
    run_id = many.trigger("many-counts")
    assert many.wait_run("many-counts", run_id) == "success"
    states = Counter(each.state for each in runs_of(many, "many-counts", run_id))
    assert states == {"Succeeded": RUNS}


def test_one_command_stops_all_and_nothing_begins_after_it(many: Airflow):
    run_id = many.trigger("many-lasts")

    def some_run() -> bool:
        states = Counter(each.state for each in runs_of(many, "many-lasts", run_id))
        return states["Running"] >= 2

    wait_until(some_run, "two of the runs train")
    command = [sys.executable, "-m", "airflow_training.cli", "kill", "-o", "json"]
    done = subprocess.run(
        [*command, "--dag-run", "many-lasts", run_id, "--reason", "wrong data"],
        env={**os.environ, **many.stack.environment_of("api-server")},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["runs"]) == {"Stopped"}
    (*_, last) = done.stderr.splitlines()
    assert last.endswith("ended")
    assert many.wait_run("many-lasts", run_id) == "failed"
    runs = runs_of(many, "many-lasts", run_id)
    assert {each.state for each in runs} == {"Stopped"}
    many.wait_nothing_alive("lasts")
    plans = Counter(states_of_plans(many, "many-lasts", run_id))
    assert (plans["success"], plans["failed"]) == (len(runs), RUNS - len(runs))

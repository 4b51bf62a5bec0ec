"""Many runs of one job in a DAG run, a few tasks at a time, on a real Airflow: all of them, and all stopped at once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_training.state.store import RunRecord
from tests.airflow.stack import Airflow
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, wait_until

RUNS = int(os.environ.get("MAPPED_RUNS", "8"))
pytestmark = [pytest.mark.e2e, pytest.mark.timeout(max(1200, 60 * RUNS))]

DAGS = '''
"""Many runs of one job, two tasks of a kind at a time (airflow dag)."""
from airflow.sdk import DAG
from airflow_training import training

for name in ("counts", "lasts"):
    with DAG(f"many-{name}-PLACE", schedule=None) as dag:
        training.partial(
            f"../mapped-jobs/{name}-PLACE.yaml",
            group_id="each",
            default_args={"max_active_tis_per_dagrun": 2},
        ).expand(params=[{"n": n} for n in range(RUNS)])
    globals()[f"many_{name}"] = dag
'''


@dataclass(frozen=True)
class Many:
    """The DAGs of one place where the jobs run."""

    airflow: Airflow
    place: str
    is_empty: Callable[[], bool]
    """Whether nothing of the jobs that last is alive."""

    def dag(self, name: str) -> str:
        return f"many-{name}-{self.place}"

    def runs(self, name: str, run_id: str) -> Sequence[RunRecord]:
        return self.airflow.store.runs(limit=1000, dag_ids=[self.dag(name)], run_id=run_id)

    def wait_run(self, name: str, run_id: str, ended: Callable[[], int]) -> str:
        """Return the state of a DAG run in the end, however many jobs there are: each has the patience of one."""
        for number in range(1, RUNS):

            def more(number: int = number) -> bool:
                over = self.airflow.run_state(self.dag(name), run_id) in ("success", "failed")
                return over or ended() >= number

            wait_until(more, f"{number} of {RUNS} runs ended")
        return self.airflow.wait_run(self.dag(name), run_id)

    def task_states(self, name: str, run_id: str, task: str) -> Counter[str]:
        """Return how many of the mapped instances of a task are in which state."""
        path = f"/dags/{self.dag(name)}/dagRuns/{run_id}/taskInstances/each.{task}/listMapped"
        answer = self.airflow.client.get(path, params={"limit": 100})
        return Counter(each["state"] for each in answer.json()["task_instances"])


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("local", id="local"),
        pytest.param("kubernetes", id="emulated-cluster", marks=pytest.mark.soak),
    ],
)
def many(airflow: Airflow, request: pytest.FixtureRequest) -> Iterator[Many]:
    """Add the DAGs."""
    place: str = request.param
    if place == "local":
        write_jobs(airflow, place, {})
        yield Many(airflow, place, lambda: not airflow.alive(f"lasts-{place}"))
        return
    with Cluster() as cluster:
        body = {
            "connection_id": "mapped",
            "conn_type": "kubernetes",
            "extra": json.dumps({"kube_config": json.dumps(cluster.kubeconfig())}),
        }
        assert airflow.ask("POST", "/connections", body).status_code == 201
        runtime = {"name": place, "connection": "mapped"}
        write_jobs(
            airflow, place, {"runtime": runtime, "image": "busybox", "cleanPodPolicy": "All"}
        )
        yield Many(airflow, place, lambda: not cluster.control.list("pods"))


def write_jobs(airflow: Airflow, place: str, spec: dict[str, Any]) -> None:
    params = {"n": {"type": "integer"}}
    for name, script in (("counts", "echo {{ params.n }}"), ("lasts", "sleep 3600")):
        command = ["sh", "-c", script]
        document = airflow.document(
            f"{name}-{place}", command=command, dag={"params": params}, **spec
        )
        airflow.write(document, folder="mapped-jobs")
    code = DAGS.replace("RUNS", str(RUNS)).replace("PLACE", place)
    (airflow.stack.home / "dags" / f"many_{place}.py").write_text(code)


def test_all_of_many_succeed_though_few_tasks_may_begin_at_a_time(many: Many):
    run_id = many.airflow.trigger(many.dag("counts"))
    ended = ("Succeeded", "Failed", "Stopped")

    def count() -> int:
        return sum(each.state in ended for each in many.runs("counts", run_id))

    assert many.wait_run("counts", run_id, count) == "success"
    states = Counter(each.state for each in many.runs("counts", run_id))
    assert states == {"Succeeded": RUNS}


def test_one_command_stops_all_and_nothing_begins_after_it(many: Many):
    run_id = many.airflow.trigger(many.dag("lasts"))

    def some_run() -> bool:
        states = Counter(each.state for each in many.runs("lasts", run_id))
        return states["Running"] >= 2

    wait_until(some_run, "two of the runs train")
    command = [sys.executable, "-m", "airflow_training.cli", "kill", "-o", "json"]
    done = subprocess.run(
        [*command, "--dag-run", many.dag("lasts"), run_id, "--reason", "wrong data"],
        env={**os.environ, **many.airflow.stack.environment_of("api-server")},
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert set(json.loads(done.stdout)["runs"]) == {"Stopped"}
    (*_, last) = done.stderr.splitlines()
    assert last.endswith("ended")

    def cleaned_up() -> int:
        states = many.task_states("lasts", run_id, "cleanup")
        return states["success"] + states["failed"]

    assert many.wait_run("lasts", run_id, cleaned_up) == "failed"
    runs = many.runs("lasts", run_id)
    assert {each.state for each in runs} == {"Stopped"}
    wait_until(many.is_empty, "nothing of the jobs is alive")
    plans = many.task_states("lasts", run_id, "plan")
    # the plan of a run that is stopped before its first pass is over has failed, as those to come
    assert plans["success"] <= len(runs)
    assert plans["success"] + plans["failed"] == RUNS

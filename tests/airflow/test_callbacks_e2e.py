"""Callbacks of a user's DAG fire for every task of a group, wherever Airflow ends the task."""

from __future__ import annotations

import pytest

from tests.airflow.stack import Airflow
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TOLD = '''
"""Jobs whose tasks tell how they ended (airflow dag)."""
from pathlib import Path
from airflow.sdk import DAG
from airflow_training import training

def tell(what):
    def callback(context):
        ti = context["ti"]
        path = Path("{room}") / f"{{ti.dag_id}}.{{what}}"
        with path.open("a") as file:
            file.write(ti.task_id + chr(10))
    return callback

callbacks = {{"on_failure_callback": tell("failure"), "on_success_callback": tell("success")}}
for name in ("told-well", "told-badly"):
    with DAG(name, schedule=None) as dag:
        training(f"../jobs-of-python/{{name}}.yaml", group_id="g", default_args=callbacks)
    globals()[name] = dag
'''
ROLES = (
    {"name": "first", "restartPolicy": "Never"},
    {
        "name": "second",
        "restartPolicy": "Never",
        "dependsOn": [{"role": "first", "status": "Complete"}],
    },
)


@pytest.mark.parametrize(
    ("job", "code", "succeeded", "failed"),
    [
        pytest.param(
            "told-well",
            0,
            {"plan", "reconcile", "first.run", "second.await_first", "second.run", "rollup"},
            set(),
            id="success",
            marks=pytest.mark.soak,  # the failed one has tasks that succeed too
        ),
        pytest.param(
            "told-badly",
            3,
            {"plan"},
            {"reconcile", "first.run", "second.await_first", "rollup"},
            id="failure",
        ),
    ],
)
def test_callbacks_fire_once_for_each_task_with_its_end(
    airflow: Airflow, job: str, code: int, succeeded: set[str], failed: set[str]
):
    airflow.write(
        airflow.document(job, *ROLES, command=["sh", "-c", f"exit {code}"]),
        folder="jobs-of-python",
    )
    other = {"told-well": "told-badly", "told-badly": "told-well"}[job]
    if not (airflow.stack.home / "jobs-of-python" / f"{other}.yaml").exists():
        airflow.write(airflow.document(other, *ROLES), folder="jobs-of-python")
    (airflow.stack.home / "dags" / "told.py").write_text(TOLD.format(room=airflow.room))
    run_id = airflow.trigger(job)
    assert airflow.wait_run(job, run_id) == ("failed" if code else "success")

    def told(what: str) -> list[str]:
        path = airflow.room / f"{job}.{what}"
        lines = path.read_text().split() if path.exists() else []
        return sorted(line.removeprefix("g.") for line in lines)

    # what the triggerer ended is told by the DAG processor, some seconds later
    expected = (sorted({*succeeded, "cleanup"}), sorted(failed))
    wait_until(
        lambda: (told("success"), told("failure")) == expected, f"callbacks of {job}: {expected}"
    )

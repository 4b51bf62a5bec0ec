"""What a training has saved, handed on in Airflow: after a clear, and to the DAG that its asset starts."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from airflow_training.documents.resolved_blocks import CheckpointReference
from tests.airflow.stack import Airflow
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TRAINS = """\
import os, pathlib
from airflow_training.checkpoints import restore, save
room, job = pathlib.Path({room!r}), os.environ["TRAINING_JOB"]
done = (restore() or {{"step": 0}})["step"]
with (room / f"{{job}}.begun").open("a") as file:
    file.write(f"{{done}}\\n")
for step in (done + 1, done + 2):
    save({{"step": step}}, step=step)
raise SystemExit(0 if (room / f"{{job}}.repaired").exists() else 3)
"""


def trains(airflow: Airflow, name: str, *, resume: Any = "latest", **dag: Any) -> dict[str, Any]:
    """Return a job whose every attempt saves two more steps, and fails until it is repaired."""
    script = airflow.room / "trains.py"
    script.write_text(TRAINS.format(room=str(airflow.room)))
    return airflow.document(
        name,
        {"name": "worker", "restartPolicy": "Never"},
        command=[sys.executable, str(script)],
        checkpoint={"uri": str(airflow.stack.home / "checkpoints"), "resume": resume},
        dag=dag,
    )


def begun(airflow: Airflow, job: str) -> list[int]:
    """Return after which step each attempt of a job went on."""
    path = airflow.room / f"{job}.begun"
    return [int(line) for line in path.read_text().split()] if path.exists() else []


def test_a_checkpoint_is_handed_on_by_a_clear_and_by_an_asset(airflow: Airflow):
    airflow.write(trains(airflow, "gives", outlets=["x-test://trained"]))
    airflow.write(
        trains(
            airflow,
            "takes",
            resume={"asset": "x-test://trained"},
            schedule={"assets": ["x-test://trained"], "operator": "any"},
        )
    )
    for name, uri in (("asks", "x-test://trained"), ("asks-wrong", "x-test://nothing")):
        airflow.write(trains(airflow, name, resume={"asset": uri}))
    for name in ("takes", "asks"):
        (airflow.room / f"{name}.repaired").touch()
    airflow.stack.wait_dag(airflow.client, "takes")
    run_id = airflow.trigger("gives")
    assert airflow.wait_run("gives", run_id) == "failed"
    left = airflow.xcom("gives", run_id, "reconcile")
    assert left["checkpoint"].keys() == {"uri", "step", "digest"}
    assert (left["state"], left["checkpoint"]["step"]) == ("Failed", 2)
    assert airflow.xcom("gives", run_id, "rollup")["checkpoint"] == left["checkpoint"]

    # clearing `reconcile` goes on from the checkpoint, in the same lineage
    (airflow.room / "gives.repaired").touch()
    airflow.clear("gives", run_id, "reconcile")
    assert airflow.wait_run("gives", run_id) == "success"
    given = airflow.xcom("gives", run_id, "rollup")["checkpoint"]
    assert (given["step"], given["uri"]) == (4, left["checkpoint"]["uri"])
    assert begun(airflow, "gives") == [0, 2]

    # whoever names the asset goes on from what its newest event names, started by it or not
    asking = airflow.trigger("asks")
    refused = airflow.trigger("asks-wrong")
    wait_until(lambda: begun(airflow, "takes"), "the other training began")
    answer = airflow.client.get("/dags/takes/dagRuns")
    (other,) = [each["dag_run_id"] for each in answer.json()["dag_runs"]]
    assert airflow.wait_run("takes", other) == "success"
    assert begun(airflow, "takes") == [4]
    job = airflow.store.job(airflow.uid("takes", other))
    assert job.checkpoint is not None
    assert job.checkpoint.initial == CheckpointReference.from_document(given)
    assert airflow.xcom("takes", other, "reconcile")["checkpoint"]["step"] == 6

    assert airflow.wait_run("asks", asking) == "success"
    assert begun(airflow, "asks") == [4]
    assert airflow.wait_run("asks-wrong", refused) == "failed"
    told = airflow.text("asks-wrong", refused, "plan")
    assert "nothing is known of a checkpoint of the asset 'x-test://nothing'" in told
    assert "Traceback" not in told

    # clearing `plan` starts afresh
    airflow.pause_dag("takes")
    airflow.clear("gives", run_id, "plan")
    assert airflow.wait_run("gives", run_id) == "success"
    assert begun(airflow, "gives") == [0, 2, 0]
    anew = airflow.xcom("gives", run_id, "rollup")["checkpoint"]
    assert anew["step"] == 2
    assert anew["uri"] != given["uri"]

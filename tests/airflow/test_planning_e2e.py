"""A job with a plan as a DAG: searched by `plan`, applied to the run, shown where people look."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.airflow.stack import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

SAY = 'echo "dp $DP_SIZE of $TRAINING_WORLD_SIZE, micro-batch $MICRO_BATCH_SIZE"'


def document(airflow: Airflow, name: str, **plan: Any) -> dict[str, Any]:
    model = {"hidden": 64, "layers": 2, "heads": 4, "seq": 64, "vocab": 512}
    return airflow.document(
        name,
        {"name": "worker", "replicas": 3},
        command=["sh", "-c", SAY],
        plan={"model": model, "globalBatch": 16, **plan},
    )


def test_the_plan_of_a_dag_sizes_its_run_and_is_shown(airflow: Airflow):
    constraints = {"devices": 1, "micro_batch": 8}
    airflow.write(document(airflow, "planned", constraints=constraints))
    run_id = airflow.trigger("planned")
    assert airflow.wait_run("planned", run_id) == "success"
    reference = airflow.xcom("planned", run_id, "plan")
    uid = airflow.uid("planned", run_id)
    plan = airflow.store.job(uid).plan
    assert plan is not None
    assert reference["plan"] == plan.id
    assert plan.strategy["micro_batch"] == 8
    assert len(airflow.ledger("planned", run_id).instances) == 1
    log = airflow.log("planned", run_id, "plan")
    assert f"plan {plan.id} of" in log
    assert "micro-batch 8 x 2" in log
    status = subprocess.run(
        [sys.executable, "-m", "airflow_training.cli", "status", uid, "-o", "json"],
        env={"AIRFLOW_HOME": str(airflow.stack.home), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(status.stdout)["plan"] == {**plan.document, "measured": None}


@pytest.mark.soak  # the command line says the same: tests/cli/test_plan.py
def test_a_cluster_that_is_too_small_fails_the_plan_with_what_would_fit(airflow: Airflow):
    large = {"hidden": 12288, "layers": 96, "heads": 96, "seq": 2048, "vocab": 51200}
    node = {"count": 1, "device": "A100-SXM4-80GB", "devices_per_node": 8}
    airflow.write(
        document(airflow, "too-large", model=large, cluster={"name": "one", "nodes": [node]})
    )
    run_id = airflow.trigger("too-large")
    assert airflow.wait_run("too-large", run_id) == "failed"
    log = airflow.text("too-large", run_id, "plan")
    assert "no strategy fits into the memory of 8 devices" in log
    assert "the smallest cluster that would fit has" in log

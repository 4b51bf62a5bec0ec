"""Hyperparameters on a real Airflow: mapped runs of one job, and the best one for the next task."""

from __future__ import annotations

import pytest

from tests.airflow.stack import Airflow

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TRAIN = """\
[ "$LR" = 0.3 ] && { echo diverged; exit 3; }
printf '{"step": 1, "metrics": {"accuracy": 0.%s}}\\n' "${LR#0.}" >> $TRAINING_PROGRESS_FILE
"""
DAGS = '''\
"""Tunes a job (airflow)."""
from airflow.sdk import DAG, task
from airflow_training import tune

with DAG("tuned", schedule=None):
    @task
    def deploy(best: dict) -> str:
        return f"lr {best['params']['lr']} of trial {best['trial']}"
    deploy(tune("../jobs-of-python/tuned-job.yaml", space={"lr": [0.1, 0.2, 0.3]}, metric="accuracy"))

with DAG("tuned-in-vain", schedule=None):
    tune("../jobs-of-python/tuned-job.yaml", space={"lr": [0.3]}, metric="accuracy")
'''


@pytest.fixture(scope="module")
def tuning(airflow: Airflow) -> Airflow:
    """Add a job whose learning rate decides how good it gets, and two DAGs that tune it."""
    document = airflow.document(
        "tuned-job",
        {"name": "worker", "restartPolicy": "Never"},
        command=["sh", "-c", TRAIN],
        env=[{"name": "LR", "value": "{{ params.lr }}"}],
        dag={"params": {"lr": {"type": "number", "default": 0.1}}},
    )
    airflow.write(document, folder="jobs-of-python")
    (airflow.stack.home / "dags" / "tuning.py").write_text(DAGS)
    return airflow


def test_the_best_trial_wins_though_one_failed(tuning: Airflow):
    run_id = tuning.trigger("tuned")
    assert tuning.wait_run("tuned", run_id) == "success"
    best = tuning.xcom("tuned", run_id, "tuned-job.best")
    assert (best["params"], best["value"]) == ({"lr": 0.2}, 0.2)
    assert (best["tried"], best["succeeded"]) == (3, 2)
    assert tuning.xcom("tuned", run_id, "deploy") == "lr 0.2 of trial 1"
    assert best["run"] == tuning.uid("tuned", run_id, group_id="tuned-job.trials", map_index=1)
    log = tuning.log("tuned", run_id, "tuned-job.best")
    assert "trial 2: lr=0.3: Failed, no value" in log


@pytest.mark.soak
def test_the_run_fails_when_no_trial_succeeded(tuning: Airflow):
    run_id = tuning.trigger("tuned-in-vain")
    assert tuning.wait_run("tuned-in-vain", run_id) == "failed"
    log = tuning.log("tuned-in-vain", run_id, "tuned-job.best")
    assert "no trial succeeded and reported 'accuracy'" in log

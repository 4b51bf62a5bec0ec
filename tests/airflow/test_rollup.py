"""`rollup` and `cleanup` on a worker: a real store, no scheduler."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.compiler.dag import job_to_dag
from airflow_training.control.root_cause import cause_lines, cause_of_reason
from airflow_training.control.run_output import RunOutput
from airflow_training.control.subtask_snapshot import write_snapshot
from airflow_training.control.subtasks import new_subtasks
from airflow_training.operators.ending import Result
from airflow_training.operators.rollup import RollupOperator
from airflow_training.state.store import Store
from tests.airflow.jobs import shell
from tests.airflow.worker_tasks import context


# the end -------------------------------------------------------------------------------------------
def test_rollup_without_a_run_says_that_plan_made_none(store: Store):
    with DAG("x", schedule=None):
        rollup = RollupOperator(task_id="rollup")
    with pytest.raises(AirflowFailException, match="`plan` did not create it"):
        rollup.execute(context())


@pytest.mark.e2e
def test_rollup_and_cleanup_stop_a_run_that_nobody_drives(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    with pytest.raises(AirflowFailException, match="Killed"):
        dag.get_task("rollup").execute(context())
    dag.get_task("cleanup").execute(context())
    ledger = store.ledger(uid)
    assert (ledger.job.state, ledger.job.drained) == ("Stopped", True)


@pytest.mark.e2e
def test_cleanup_alone_ends_a_run_whose_rollup_never_came(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    dag.get_task("cleanup").execute(context())
    ledger = store.ledger(uid)
    assert (ledger.job.state, ledger.job.drained) == ("Stopped", True)
    assert store.lease(uid) is None


def result(**fields: Any) -> Result:
    return Result(
        **{"uid": "u", "job": "j", "state": "Failed", "reason": "R", "message": "m", **fields}
    )


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({"root_cause": ("worker-0: OOMKilled",)}, "root cause: worker-0: OOMKilled"),
        ({}, "root cause: R: m"),
        ({"state": "Succeeded"}, "job j succeeded (R: m)"),
    ],
)
def test_the_root_cause_comes_first(fields: dict[str, Any], first: str):
    assert result(**fields).story().splitlines()[0] == first


def test_what_a_log_says_about_the_root_cause_stands_below_it_and_each_part_on_its_own_line():
    found = cause_of_reason(
        reason="Error", message="exited", at=0.0, role="worker", index=1, attempt=2, exit_code=1
    )
    found = replace(
        found,
        id="cuda-out-of-memory",
        category="resource",
        confidence=0.9,
        file="worker-1",
        line=7,
        rank=1,
        evidence="RuntimeError: CUDA out of memory",
        advice="Smaller micro batch",
    )
    assert result(root_cause=cause_lines(found)).story().splitlines()[:6] == [
        "root cause: worker-1: exit code 1 (cuda-out-of-memory): RuntimeError: CUDA out of memory (attempt 2)",
        "  cause: cuda-out-of-memory (resource, 90 % sure)",
        "  proof: RuntimeError: CUDA out of memory",
        "  where: worker-1:7 (rank 1)",
        "  what to do: Smaller micro batch",
        "job j failed (R: m)",
    ]
    exited = replace(found, advice="", evidence="exited")
    no_log = result(root_cause=cause_lines(exited)).story().splitlines()
    assert no_log[:2] == [
        "root cause: worker-1: exit code 1: exited (attempt 2)",
        "job j failed (R: m)",
    ]


def test_the_checkpoint_is_told_and_goes_with_the_asset():
    reference = {"uri": "s3://models/digits/u/0", "step": 900, "digest": "sha256:0"}
    done = result(state="Succeeded", checkpoint=reference)
    assert "checkpoint: step 900 in s3://models/digits/u/0" in done.story().splitlines()
    assert done.asset_extra()["checkpoint"] == done.reference()["checkpoint"] == reference


@pytest.mark.e2e
def test_rollup_of_a_job_that_failed_leaves_its_reference_too(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    seen = context()
    with pytest.raises(AirflowFailException, match="Killed"):
        dag.get_task("rollup").execute(seen)
    left = seen["ti"].pushed["return_value"]
    assert (left["run"], left["state"], left["checkpoint"]) == (uid, "Stopped", None)


class StateStore(dict[str, Any]):
    """What a task may keep in Airflow, beside its XCom."""

    set = dict.__setitem__


@pytest.mark.e2e
def test_where_processes_stood_is_in_the_state_of_the_task(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    snapshot = write_snapshot(new_subtasks(2, generation=1))
    store.subtasks.save(uid, {"": snapshot})
    seen = context()
    seen["task_state_store"] = StateStore()
    with pytest.raises(AirflowFailException, match="Killed"):
        dag.get_task("rollup").execute(seen)
    assert seen["task_state_store"] == {"subtasks": snapshot}


def test_what_goes_through_xcom_stays_small_whatever_a_script_measures():
    many = result(
        metrics={f"{number}-{'metric' * 10}": 0.1 * number for number in range(500)},
        output=RunOutput(uri=f"s3://{'models/' * 30}final"),
        checkpoint={"uri": f"s3://{'models/' * 30}", "step": 9, "digest": f"sha256:{64 * 'a'}"},
    )
    assert 512 < len(json.dumps(many.reference())) <= 1024
    assert many.reference()["metrics"], "as many as find room"
    assert many.reference()["checkpoint"]["step"] == 9

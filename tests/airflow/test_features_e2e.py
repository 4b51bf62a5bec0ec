"""What a person does with jobs in Airflow, on a real one."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest
import yaml

from airflow_training.admission.check import check_text
from tests.airflow.stack import Airflow
from tests.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TRAIN = """\
echo '{"step": 1, "metrics": {"accuracy": 0.97}}' >> $TRAINING_PROGRESS_FILE
echo model-of-$LR > $TRAINING_OUTPUT_DIR/model.txt
"""
PIPELINE = '''
"""Data, training, deployment; and a mapped training (airflow dag)."""
from airflow.sdk import DAG, Asset, task
from airflow_training import training

with DAG("pipeline", schedule=None):
    @task
    def best() -> dict:
        return {"lr": 0.25, "note": "x" * 5000}
    @task
    def deploy(result: dict) -> str:
        return f"deployed {result['output']} {result['metrics']['accuracy']}"
    group = training("../jobs-of-python/trains.yaml", params=best(), group_id="train")
    group >> deploy(group.children["train.rollup"].output)

with DAG("search", schedule=None):
    training.partial("../jobs-of-python/trains.yaml", group_id="each").expand(
        params=[{"lr": 0.1}, {"lr": 0.2}]
    )

with DAG("follower", schedule=[Asset("x-test://model")]):
    @task
    def use(triggering_asset_events=None) -> dict:
        [events] = triggering_asset_events.values()
        return events[-1].extra
    use()
'''


def trains(airflow: Airflow) -> dict[str, Any]:
    """Return a job that reports a metric and leaves a model."""
    return airflow.document(
        "trains",
        command=["sh", "-c", TRAIN],
        env=[{"name": "LR", "value": "{{ params.lr }}"}],
        output={"uri": f"file://{airflow.stack.home}/models/{{{{ run_id }}}}-{{{{ params.lr }}}}"},
        dag={
            "params": {
                "lr": {"type": "number", "default": 0.1, "minimum": 0},
                "note": {"type": "string", "default": ""},
            },
            "outlets": ["x-test://model"],
        },
    )


@pytest.fixture(scope="module")
def pipeline(airflow: Airflow) -> Airflow:
    """Add the Python DAGs."""
    airflow.write(trains(airflow), folder="jobs-of-python")
    (airflow.stack.home / "dags" / "pipeline.py").write_text(PIPELINE)
    return airflow


@pytest.fixture(scope="module")
def trained(pipeline: Airflow) -> str:
    """Return the id of a run of the pipeline that succeeded."""
    run_id = pipeline.trigger("pipeline")
    assert pipeline.wait_run("pipeline", run_id) == "success"
    return run_id


def test_a_job_between_two_tasks_takes_xcom_parameters_and_hands_on_its_model(
    pipeline: Airflow, trained: str
):
    run_id = trained
    result = pipeline.xcom("pipeline", run_id, "train.rollup")
    assert result["metrics"] == {"accuracy": 0.97}
    model = result["output"].removeprefix("file://")
    assert "0.25" in model
    assert pipeline.xcom("pipeline", run_id, "deploy") == f"deployed {result['output']} 0.97"
    uid = pipeline.uid("pipeline", run_id, group_id="train")
    assert pipeline.store.ledger(uid).job.state == "Succeeded"
    assert pipeline.store.job(uid).variables["params"]["note"] == "x" * 5000
    # the large parameter went through object storage; ours are references and stay small
    stored = [
        path.parent.name for path in (pipeline.stack.home / "xcom").rglob("*") if path.is_file()
    ]
    assert set(stored) == {"best"}
    for task_id, key in (("train.plan", "return_value"), ("train.rollup", "return_value")):
        size = len(json.dumps(pipeline.xcom("pipeline", run_id, task_id, key)))
        assert size < 1024


def test_the_model_is_an_asset_with_its_uri_metrics_and_run(pipeline: Airflow, trained: str):
    uid = pipeline.uid("pipeline", trained, group_id="train")

    def follower() -> dict[str, Any] | None:
        answer = pipeline.client.get("/dags/follower/dagRuns", params={"order_by": "-run_after"})
        runs = [each["dag_run_id"] for each in answer.json().get("dag_runs", [])]
        extras = [pipeline.xcom("follower", each, "use") for each in runs if _ended(pipeline, each)]
        return next((each for each in extras if each["run"] == uid), None)

    extra = wait_until(follower, "the follower was told of the model")
    assert extra["metrics"] == {"accuracy": 0.97}
    assert extra["uri"].startswith("file://")


def _ended(airflow: Airflow, run_id: str) -> bool:
    return airflow.run_state("follower", run_id) == "success"


@pytest.mark.soak  # tests of tuning have one too
def test_a_mapped_group_is_one_run_for_each_set_of_parameters(pipeline: Airflow):
    run_id = pipeline.trigger("search")
    assert pipeline.wait_run("search", run_id) == "success"
    states = pipeline.states("search", run_id)
    assert states["each.worker.run[0]"] == states["each.worker.run[1]"] == "success"
    models = {
        pipeline.ledger("search", run_id, group_id="each", map_index=index).job.state: index
        for index in (0, 1)
    }
    assert models.keys() == {"Succeeded"}
    outputs = [
        pipeline.store.output(pipeline.uid("search", run_id, group_id="each", map_index=index))
        for index in (0, 1)
    ]
    assert [str(each and each.uri).rpartition("-")[2] for each in outputs] == ["0.1", "0.2"]


# failures ------------------------------------------------------------------------------------------
def lines_of_operators(
    airflow: Airflow, dag_id: str, run_id: str, task_id: str
) -> list[dict[str, Any]]:
    """Return the lines of a task's log that our operators wrote."""
    lines = airflow.log_lines(dag_id, run_id, task_id)
    return [line for line in lines if "airflow_training.operators" in line.get("logger", "")]


def test_a_failing_job_names_its_root_cause_first_and_shows_the_end_of_the_log(airflow: Airflow):
    airflow.write(
        airflow.document(
            "fails",
            {"name": "worker", "restartPolicy": "Never"},
            command=["sh", "-c", "echo cannot read the data; exit 3"],
        )
    )
    run_id = airflow.trigger("fails")
    assert airflow.wait_run("fails", run_id) == "failed"
    states = airflow.states("fails", run_id)
    assert states == {
        "plan": "success",
        "worker.run": "failed",
        "reconcile": "failed",
        "rollup": "failed",
        "cleanup": "success",
    }
    for task_id in ("rollup", "reconcile"):
        lines = airflow.log_lines("fails", run_id, task_id)
        assert not [line for line in lines if line.get("error_detail")]
        assert "Traceback" not in airflow.log("fails", run_id, task_id)
    ours = [line["event"] for line in lines_of_operators(airflow, "fails", run_id, "rollup")]
    assert ours[0].startswith("root cause: worker-0: ")
    assert "exit code 3" in ours[0]
    assert max(map(len, ours)) <= 110
    assert "cannot read the data" in airflow.log("fails", run_id, "worker.run")


def test_a_failing_job_says_why_with_the_line_that_proves_it_and_what_to_do(airflow: Airflow):
    error = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    airflow.write(
        airflow.document(
            "runs-out-of-memory",
            {"name": "worker"},
            command=["sh", "-c", f"echo step 7 loss 0.5; echo '{error}' >&2; exit 1"],
            restart={"backoff": {"initialSeconds": 60}},
        )
    )
    run_id = airflow.trigger("runs-out-of-memory")
    assert airflow.wait_run("runs-out-of-memory", run_id) == "failed"
    ours = [
        line["event"]
        for line in lines_of_operators(airflow, "runs-out-of-memory", run_id, "rollup")
    ]
    assert ours[0].startswith("root cause: worker-0: exit code 1 (cuda-out-of-memory): RuntimeErr")
    below = [line for line in ours if line.startswith("  ") and ": " in line]
    assert [line for line in below if line.startswith("  cause: cuda-out-of-memory (resource, ")]
    assert f"  proof: {error}" in below
    assert [line for line in below if line.startswith("  where: worker-0:")]
    assert [line for line in below if line.startswith("  what to do: Smaller micro batch")]
    assert max(map(len, ours)) <= 110
    log = airflow.log("runs-out-of-memory", run_id, "worker.run")
    assert "root cause: worker-0: exit code 1 (cuda-out-of-memory): " in log
    assert "what to do: Smaller micro batch" in log
    ledger = airflow.ledger("runs-out-of-memory", run_id)
    assert ledger.job.reason == "NotRetryable"
    assert ledger.job.root_cause is not None
    assert ledger.job.root_cause.file == "worker-0"


def test_a_refused_job_fails_in_plan_with_the_text_of_the_command_line(airflow: Airflow):
    document = airflow.document("refused", env=[{"name": "TRAINING_RANK", "value": "7"}])
    (problem,) = check_text(yaml.safe_dump(document), path="<job>")[0].problems
    run_id = airflow.trigger("training_job", job=yaml.safe_dump(document))
    assert airflow.wait_run("training_job", run_id) == "failed"
    log = airflow.log("training_job", run_id, "plan")
    for line in str(problem).splitlines():
        assert line in log
    states = airflow.states("training_job", run_id)
    assert (states["reconcile"], states["rollup"]) == ("upstream_failed", "failed")


# the generic DAG -----------------------------------------------------------------------------------
@pytest.mark.soak  # `submit` sends the same form
def test_a_job_given_in_the_form_runs_and_its_roles_are_named(airflow: Airflow):
    document = airflow.document(
        "by-form", {"name": "first"}, {"name": "second"}, command=["sh", "-c", "exit 0"]
    )
    run_id = airflow.trigger("training_job", job=yaml.safe_dump(document))
    assert airflow.wait_run("training_job", run_id) == "success"
    answer = airflow.client.get(f"/dags/training_job/dagRuns/{run_id}/taskInstances")
    names = {each["rendered_map_index"] for each in answer.json()["task_instances"]}
    assert {"first", "second"} <= names


@pytest.mark.parametrize(
    "conf",
    [
        pytest.param({"job": 7}, id="job-is-no-text"),
        pytest.param({"parameters": "lr"}, id="parameters-are-no-object"),
        pytest.param({"path": "/etc/passwd"}, id="a-file-of-the-server"),
        pytest.param({"template": "../secrets"}, id="no-template"),
    ],
)
def test_what_the_form_can_see_is_refused_when_it_is_sent(airflow: Airflow, conf: dict[str, Any]):
    airflow.stack.wait_dag(airflow.client, "training_job")
    answer = airflow.ask("POST", "/dags/training_job/dagRuns", {"logical_date": None, "conf": conf})
    assert answer.status_code == 400, answer.text


def test_a_parameter_out_of_range_is_refused_when_it_is_sent(airflow: Airflow):
    airflow.write({**trains(airflow), "metadata": {"name": "ranged"}})
    airflow.stack.wait_dag(airflow.client, "ranged")
    answer = airflow.ask("POST", "/dags/ranged/dagRuns", {"logical_date": None, "conf": {"lr": -1}})
    assert answer.status_code == 400
    assert "less than the minimum" in answer.text


# files ---------------------------------------------------------------------------------------------
def test_a_broken_file_is_its_own_import_error_and_harms_no_other(airflow: Airflow):
    broken = airflow.document("broken", {"name": "worker", "dependsOn": [{"role": "wroker"}]})
    airflow.write(broken)
    airflow.write(airflow.document("beside-broken"))
    airflow.stack.wait_dag(airflow.client, "beside-broken")

    def error() -> str | None:
        found = airflow.client.get("/importErrors").json()["import_errors"]
        return next((each["stack_trace"] for each in found if "broken_" in each["filename"]), None)

    text = wait_until(error, "the import error")
    assert "no role is called 'wroker'" in text
    assert airflow.client.get("/dags/broken").status_code == 404
    (airflow.stack.home / "jobs" / "broken.yaml").unlink()


# pages ---------------------------------------------------------------------------------------------
def test_a_role_task_links_to_the_logs_of_its_instances_for_those_who_may_read_them(
    airflow: Airflow,
):
    job = "linked"
    document = airflow.document(job)
    document["spec"]["command"][-1] = f"echo hello from inside\n{document['spec']['command'][-1]}"
    airflow.write(document)
    run_id = airflow.trigger(job)
    wait_until(
        lambda: "worker-0 | hello from inside" in airflow.log(job, run_id, "worker.run"),
        "the task tells what its training prints",
    )
    assert airflow.states(job, run_id)["worker.run"] == "deferred"
    airflow.end(job)
    assert airflow.wait_run(job, run_id) == "success"
    links = airflow.client.get(
        f"/dags/{job}/dagRuns/{run_id}/taskInstances/worker.run/links"
    ).json()["extra_links"]
    page = airflow.stack.url + links["Instance logs"]
    assert httpx.get(page).status_code == 401
    headers = {"Authorization": airflow.client.headers["Authorization"]}
    listed = httpx.get(page, headers=headers)
    assert listed.status_code == 200
    assert "worker-0" in listed.text
    params = {"dag_id": job, "run_id": run_id, "task_id": "worker.run", "role": "worker"}
    log = f"{airflow.stack.url}/training/log"
    assert httpx.get(log, params={**params, "index": 0}).status_code == 401
    text = httpx.get(log, params={**params, "index": 0}, headers=headers)
    assert "hello from inside" in text.text
    assert httpx.get(log, params={**params, "index": 9}, headers=headers).status_code == 404

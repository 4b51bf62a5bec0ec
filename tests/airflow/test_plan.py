"""`plan`, `rollup` and `cleanup` on a worker: a real store, no scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pendulum
import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.compiler.dag import job_to_dag
from airflow_training.compiler.form import form_params, job_of_form
from airflow_training.compiler.generic import generic_dag
from airflow_training.compiler.group import training
from airflow_training.control.subtask_snapshot import compact
from airflow_training.control.subtasks import fresh
from airflow_training.errors import InputError
from airflow_training.operators.admit import template_variables
from airflow_training.operators.ending import Result
from airflow_training.operators.rollup import RollupOperator
from airflow_training.spec.templates import render
from airflow_training.state.store import Store, open_store
from tests.airflow.jobs import shell
from tests.airflow.test_triggers import TaskInstance


def context(*, params: Mapping[str, Any] | None = None, **task_instance: Any) -> Any:
    """Return what Airflow's context holds of use here."""
    ti = TaskInstance("plan", **task_instance)
    return {"ti": ti, "run_id": ti.run_id, "params": dict(params or {}), "outlet_events": {}}


@pytest.fixture
def store(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    return open_store()


def test_plan_puts_a_run_into_the_queue_and_returns_a_small_reference(store: Store):
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    reference = plan.execute(context())
    assert reference == {"run": reference["run"], "job": "hello", "roles": ["worker"]}
    assert len(json.dumps(reference)) < 1024
    record = store.run(reference["run"])
    assert record is not None
    assert (record.queued, record.key.dag_id, record.key.run_id) == (True, "dag", "manual")


def test_the_parameters_of_the_dag_run_reach_the_command(store: Store):
    document = shell("hello", "echo {{ params.lr }}", dag={"params": {"lr": {"type": "number"}}})
    reference = job_to_dag(document).get_task("plan").execute(context(params={"lr": 0.7}))
    assert store.job(reference["run"]).variables["params"] == {"lr": 0.7}


def test_a_mistake_that_only_plan_sees_is_told_as_the_command_line_tells_it(store: Store):
    plan = job_to_dag(
        shell("hello", "true", env=[{"name": "TRAINING_RANK", "value": "1"}])
    ).get_task("plan")
    with pytest.raises(AirflowFailException, match=r"(?s)the job was refused.*TRAINING_RANK"):
        plan.execute(context())
    assert store.runs() == []


def test_the_local_runtime_is_off_unless_an_administrator_allows_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("AIRFLOW__TRAINING__ALLOW_LOCAL")
    with pytest.raises(AirflowFailException, match="local runtime is off inside Airflow"):
        job_to_dag(shell("hello", "true")).get_task("plan").execute(context())


def test_a_later_try_of_plan_begins_again_with_a_new_document(store: Store, tmp_path: Path):
    path = tmp_path / "hello.yaml"
    path.write_text(yaml.safe_dump(shell("hello", "echo one")))
    plan = job_to_dag(path).get_task("plan")
    uid = plan.execute(context())["run"]
    path.write_text(yaml.safe_dump(shell("hello", "echo two")))
    assert plan.execute(context(try_number=2))["run"] == uid
    assert "echo two" in str(store.job(uid).document)
    assert store.ledger(uid).job.state not in ("Stopped", "Failed")


def test_a_cleared_plan_makes_a_job_that_hears_nothing_of_what_was_asked_before(store: Store):
    """The old job was stopped; the new one waits for its turn, and for its roles to be asked for."""
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    uid = plan.execute(context())["run"]
    store.add_request(uid, "activate", role="worker")
    plan.execute(context(try_number=2))
    assert [each.kind for each in store.requests(uid)] == ["activate", "stop"]
    assert store.requests(uid, after=store.ledger(uid).job.seen_request) == []
    record = store.run(uid)
    assert record is not None
    assert (record.state, record.queued, record.tombstone) == ("Pending", True, False)


def test_a_second_worker_with_the_same_try_finds_the_run_that_is_there(store: Store):
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    assert plan.execute(context()) == plan.execute(context())
    assert len(store.runs()) == 1


def planned(tmp_path: Path, *, devices: str = "A100-SXM4-80GB") -> Any:
    """Return `plan` of a job whose cluster is a file that the test may change."""
    node = {"count": 1, "device": devices, "devices_per_node": 8}
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"name": devices, "nodes": [node]}))
    wanted = {
        "model": {"hidden": 64, "layers": 2, "heads": 4, "seq": 64, "vocab": 512},
        "globalBatch": 16,
        "cluster": "cluster.yaml",
        "constraints": {"devices": 1},
    }
    document = shell("planned", "true", plan=wanted)
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(document))
    return job_to_dag(tmp_path / "job.yaml").get_task("plan")


def test_a_job_that_asks_for_a_plan_gets_one_and_its_id_goes_through_xcom(
    store: Store, tmp_path: Path
):
    reference = planned(tmp_path).execute(context())
    plan = store.job(reference["run"]).plan
    assert plan is not None
    assert reference["plan"] == plan["id"]
    assert len(json.dumps(reference)) < 1024
    [told] = store.events(reference["run"])
    assert (told.event.reason, told.event.data) == ("Planned", {"plan": plan["id"]})


def test_a_cleared_plan_plans_anew_and_the_same_try_keeps_the_plan(store: Store, tmp_path: Path):
    first = planned(tmp_path).execute(context())["plan"]
    task = planned(tmp_path, devices="V100-SXM2-32GB")
    assert task.execute(context())["plan"] == first, "another worker with the same try"
    (tmp_path / "cluster.yaml").unlink()
    assert task.execute(context())["plan"] == first, "what is stored needs no file"
    again = planned(tmp_path, devices="V100-SXM2-32GB").execute(context(try_number=2))
    assert again["plan"] != first
    newest = store.job(again["run"]).plan
    assert newest is not None
    assert newest["cluster"] == "V100-SXM2-32GB"


def test_templates_see_the_dag_run_and_nothing_of_airflow():
    found = template_variables({"run_id": "r", "conn": "secret", "var": "secret"})
    assert found == {
        "run_id": "r",
        "logical_date": None,
        "data_interval_start": None,
        "data_interval_end": None,
        "triggering_assets": [],
    }


def test_the_dates_of_a_dag_run_can_be_asked_for_their_parts():
    at = pendulum.datetime(2026, 1, 2, 3, tz="UTC")
    seen = template_variables({"run_id": "r", "logical_date": at, "data_interval_start": at})
    text = "{{ logical_date.year }} {{ data_interval_start.strftime('%Y%m%d') }} {{ logical_date }}"
    assert render(text, seen) == f"2026 20260102 {at.isoformat()}"


# the form ------------------------------------------------------------------------------------------
@pytest.fixture
def folders(airflow_home: Path) -> Path:
    for folder, name in (("jobs", "mine"), ("job_templates", "common")):
        (airflow_home / folder).mkdir()
        (airflow_home / folder / f"{name}.yaml").write_text(yaml.safe_dump(shell(name, "true")))
    (airflow_home / "secret.yaml").write_text("password: hunter2")
    return airflow_home


def test_the_form_offers_templates_and_job_files(folders: Path):
    params = form_params()
    assert params["template"].schema["enum"] == [None, "common"]
    assert params["path"].schema["enum"] == [None, "mine.yaml"]
    assert params["job"].schema["format"] == "multiline"


@pytest.mark.parametrize(
    ("form", "name"),
    [
        ({"job": yaml.safe_dump(shell("typed", "true"))}, "typed"),
        ({"template": "common"}, "common"),
        ({"path": "mine.yaml"}, "mine"),
    ],
)
def test_a_form_names_one_job(folders: Path, form: dict[str, str], name: str):
    assert job_of_form(form).read().metadata.name == name


@pytest.mark.parametrize(
    ("form", "message"),
    [
        pytest.param({}, "exactly one of job, template and path", id="nothing"),
        pytest.param({"job": "x", "path": "mine.yaml"}, "not job and path", id="two"),
        pytest.param({"path": "../secret.yaml"}, "is not in", id="outside"),
        pytest.param({"path": "/etc/passwd"}, "is not in", id="absolute"),
        pytest.param({"template": "../secret"}, "no job template is called", id="no-template"),
    ],
)
def test_a_form_names_no_other_file_of_the_server(
    folders: Path, form: dict[str, str], message: str
):
    with pytest.raises(InputError, match=message):
        job_of_form(form)


def test_the_plan_of_the_generic_dag_returns_the_roles(store: Store):
    document = shell("hello", "true", roles=[{"name": "a"}, {"name": "b"}])
    plan = generic_dag().get_task("plan")
    given = context(params={"job": yaml.safe_dump(document), "parameters": {}})
    assert plan.execute(given) == ["a", "b"]
    assert given["ti"].pushed["reference"]["job"] == "hello"


@pytest.mark.parametrize(
    ("template", "what"),
    [
        ({"spec": {"hostNetwork": True}}, "hostNetwork"),
        ({"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}}, "hostPath"),
    ],
)
def test_a_job_from_the_form_asks_for_no_rights_over_a_node(
    store: Store, template: dict[str, Any], what: str
):
    document = shell("hello", "true", template=template)
    document["spec"]["roles"] = [{"name": "worker", "template": document["spec"].pop("template")}]
    plan = generic_dag().get_task("plan")
    with pytest.raises(AirflowFailException, match=what):
        plan.execute(context(params={"job": yaml.safe_dump(document)}))


# pools ---------------------------------------------------------------------------------------------
POOLED = {
    "roles": [{"name": "first"}, {"name": "second", "dependsOn": [{"role": "first"}]}],
}


@pytest.mark.parametrize(("slots", "fits"), [(3, True), (2, False)])
def test_a_group_must_fit_into_a_pool_that_counts_deferred_tasks(
    store: Store, slots: int, fits: bool
):
    """At once: reconcile, first.run, and of the second role the sensor or the task."""
    store.save_pools(store.deployment_id(), {"small": slots})
    with DAG("mine", schedule=None) as dag:
        training(shell("hello", "true", **POOLED), default_args={"pool": "small"})
    plan = dag.get_task("hello.plan")
    if fits:
        assert plan.execute(context())["job"] == "hello"
        return
    with pytest.raises(AirflowFailException, match="pool 'small' has 2 slots") as refused:
        plan.execute(context())
    assert "hello.reconcile, hello.first.run, hello.second.await_first" in str(refused.value)
    assert store.runs() == []


@pytest.mark.parametrize(("slots", "fits"), [(3, True), (2, False)])
def test_roles_from_the_form_count_too(store: Store, slots: int, fits: bool):
    store.save_pools(store.deployment_id(), {"default_pool": slots})
    plan = generic_dag().get_task("plan")
    given = context(params={"job": yaml.safe_dump(shell("hello", "true", **POOLED))})
    if fits:
        assert plan.execute(given) == ["first", "second"]
        return
    with pytest.raises(
        AirflowFailException, match=r"holds up to 3 in it .* role\[first\], role\[second\]"
    ):
        plan.execute(given)


def test_the_store_keeps_the_pools_of_each_deployment(store: Store):
    assert store.pools("one") == {}
    store.save_pools("one", {"a": 1, "b": 2})
    store.save_pools("two", {"a": 7})
    store.save_pools("one", {"b": 3})
    assert (store.pools("one"), store.pools("two")) == ({"b": 3}, {"a": 7})


# the end -------------------------------------------------------------------------------------------
def test_rollup_without_a_run_says_that_plan_made_none(store: Store):
    with DAG("x", schedule=None):
        rollup = RollupOperator(task_id="rollup")
    with pytest.raises(AirflowFailException, match="`plan` did not create it"):
        rollup.execute(context())


def test_rollup_and_cleanup_stop_a_run_that_nobody_drives(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    with pytest.raises(AirflowFailException, match="Killed"):
        dag.get_task("rollup").execute(context())
    dag.get_task("cleanup").execute(context())
    ledger = store.ledger(uid)
    assert (ledger.job.state, ledger.job.drained) == ("Stopped", True)


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
        ({"root_cause": "worker-0: OOMKilled"}, "root cause: worker-0: OOMKilled"),
        ({}, "root cause: R: m"),
        ({"state": "Succeeded"}, "job j succeeded (R: m)"),
    ],
)
def test_the_root_cause_comes_first(fields: dict[str, Any], first: str):
    assert result(**fields).story().splitlines()[0] == first


def test_the_checkpoint_is_told_and_goes_with_the_asset():
    reference = {"uri": "s3://models/digits/u/0", "step": 900, "digest": "sha256:0"}
    done = result(state="Succeeded", checkpoint=reference)
    assert "checkpoint: step 900 in s3://models/digits/u/0" in done.story().splitlines()
    assert done.asset_extra()["checkpoint"] == done.reference()["checkpoint"] == reference


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


def test_where_processes_stood_is_in_the_state_of_the_task(store: Store):
    dag = job_to_dag(shell("hello", "sleep 60"))
    uid = dag.get_task("plan").execute(context())["run"]
    snapshot = compact(fresh(2, generation=1))
    store.save_subtasks(uid, {"": snapshot})
    seen = context()
    seen["task_state_store"] = StateStore()
    with pytest.raises(AirflowFailException, match="Killed"):
        dag.get_task("rollup").execute(seen)
    assert seen["task_state_store"] == {"subtasks": snapshot}


def test_what_goes_through_xcom_stays_small_whatever_a_script_measures():
    many = result(
        metrics={f"{number}-{'metric' * 10}": 0.1 * number for number in range(500)},
        output={"uri": f"s3://{'models/' * 30}final"},
        checkpoint={"uri": f"s3://{'models/' * 30}", "step": 9, "digest": f"sha256:{64 * 'a'}"},
    )
    assert 512 < len(json.dumps(many.reference())) <= 1024
    assert many.reference()["metrics"], "as many as find room"
    assert many.reference()["checkpoint"]["step"] == 9

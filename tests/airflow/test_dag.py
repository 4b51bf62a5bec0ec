"""A job as a DAG of its own."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from pathlib import Path

import pytest
from airflow.sdk import DAG, AssetAll, AssetAny
from airflow.sdk.definitions.param import process_params
from airflow.serialization.serialized_objects import DagSerialization

from airflow_training import job_to_dag
from airflow_training.compiler.generic import generic_dag
from airflow_training.documents import TrainingJob
from airflow_training.errors import InputError
from tests.airflow.jobs import PYTORCH, job
from tests.airflow.shapes import compare, round_trip, shape


def test_a_pytorch_job_becomes_the_dag_of_the_golden_file():
    compare("pytorch_dag", shape(job_to_dag(PYTORCH)))


@pytest.mark.parametrize("make", [lambda: job_to_dag(PYTORCH), generic_dag])
def test_the_end_is_told_and_confirmed_by_two_tasks_at_once(make: Callable[[], DAG]):
    rollup, cleanup = (make().get_task(name) for name in ("rollup", "cleanup"))
    assert cleanup.upstream_task_ids == rollup.upstream_task_ids
    assert "reconcile" in rollup.upstream_task_ids
    assert rollup.is_teardown
    assert cleanup.is_teardown


def test_a_training_job_a_document_and_a_file_make_the_same_dag(tmp_path: Path):
    model = TrainingJob.model_validate(PYTORCH)
    path = tmp_path / "digits.yaml"
    path.write_text(model.to_yaml())
    shapes = [shape(job_to_dag(each)) for each in (model, PYTORCH, path)]
    assert shapes[0] == shapes[1] == shapes[2]


def test_the_docs_of_a_dag_name_its_file_its_roles_and_what_its_tasks_do(tmp_path: Path):
    path = tmp_path / "digits.yaml"
    path.write_text(TrainingJob.model_validate(PYTORCH).to_yaml())
    told = job_to_dag(path).doc_md or ""
    assert f"File: {path}\n" in told
    assert "pytorch, roles master (1), worker (2)." in told
    for name in ("plan", "reconcile", "await_&lt;role&gt;", "run", "rollup", "cleanup"):
        assert f"- **{name}** " in told
    for task_id in generic_dag().task_ids:
        assert f"- **{task_id}**" in (generic_dag().doc_md or "")


def test_the_start_date_is_utc_where_the_document_names_no_zone():
    assert job_to_dag(PYTORCH).start_date == dt.datetime(2026, 1, 1, tzinfo=dt.timezone.utc)


@pytest.mark.parametrize(
    ("schedule", "kind"),
    [
        pytest.param({"assets": ["s3://a/x", "s3://b/x"]}, AssetAll, id="all-by-default"),
        pytest.param({"assets": ["s3://a/x", "s3://b/x"], "operator": "any"}, AssetAny, id="any"),
    ],
)
def test_an_asset_schedule_names_its_assets(schedule, kind):
    dag = job_to_dag(job(dag={"schedule": schedule}))
    condition = dag.timetable.asset_condition
    assert type(condition) is kind
    assert [asset.uri for asset in condition.objects] == ["s3://a/x", "s3://b/x"]


@pytest.mark.parametrize("schedule", ["@weekly", "0 3 * * 1", None])
def test_a_cron_or_preset_schedule_survives_the_round_trip(schedule):
    dag = job_to_dag(job(dag={"schedule": schedule} if schedule else {}))
    assert round_trip(dag).timetable.summary == (schedule or "None").replace("@weekly", "0 0 * * 0")


def test_parameters_are_checked_by_their_types_and_ranges():
    param = job_to_dag(PYTORCH).params.get_param("lr")
    assert param.resolve(0.5) == 0.5
    with pytest.raises(ValueError, match="-1 is less than the minimum of 0"):
        param.resolve(-1)


def test_the_form_is_told_a_range_but_given_none_to_clamp_to():
    """The widget of a number puts the nearest allowed one in the place of what was typed."""
    params = {
        "lr": {"type": "number", "default": 0.1, "minimum": 0, "exclusiveMaximum": 10},
        "size": {"type": "integer", "default": 8, "exclusiveMinimum": 1, "maximum": 9},
    }
    dag = job_to_dag(job(dag={"params": params}))
    shown = {name: dag.params.get_param(name) for name in params}
    assert [each.schema["type"] for each in shown.values()] == ["number", "integer"]
    for each in shown.values():
        assert not {key for key in each.schema if "inimum" in key or "aximum" in key}
    assert shown["lr"].description == "at least 0, less than 10"
    assert shown["size"].description == "more than 1, at most 9"
    for name, values in {"lr": (-1, 10), "size": (1, 11)}.items():
        for value in values:
            with pytest.raises(ValueError, match=f"{value} is "):
                shown[name].resolve(value)


def test_a_task_sees_the_parameters_but_keeps_no_copy_of_them():
    dag = job_to_dag(PYTORCH)
    plan = dag.get_task("plan")
    seen = process_params(dag, plan, {"lr": 0.5}, suppress_exception=False)
    assert seen["lr"] == 0.5
    assert not any(task.params for task in dag.tasks)


def test_the_page_of_a_dag_shows_its_job_which_is_no_template_of_airflow():
    dag = job_to_dag(job(command=["python", "train.py", "--name", "{{ run_id }}-of-mine"]))
    serialized = DagSerialization.to_dict(dag)
    assert "```yaml\napiVersion: airflow-training/v1\n" in dag.doc_md
    assert "'{{ run_id }}-of-mine'" in serialized["dag"].pop("doc_md")
    assert "of-mine" not in str(serialized)
    assert [t.task_id for t in dag.tasks if t.template_fields] == ["plan"]
    assert dag.get_task("plan").template_fields == ("arguments",)


@pytest.mark.parametrize("name", ["plan", "reconcile", "rollup", "cleanup"])
def test_a_role_may_be_called_like_one_of_the_tasks(name):
    dag = job_to_dag(job(framework="custom", roles=[{"name": name}]))
    assert f"{name}_role.run" in dag.task_ids


@pytest.mark.parametrize(
    ("change", "code"),
    [
        pytest.param({"framework": "nope"}, "unknown_framework", id="framework"),
        pytest.param({"roles": [{"name": "mastr"}]}, "unknown_role", id="role"),
        pytest.param({"replicas": 3}, "unknown_key", id="key"),
    ],
)
def test_what_is_seen_without_running_is_refused_when_the_dag_is_made(change, code):
    with pytest.raises(InputError) as refused:
        job_to_dag(job(**change))
    assert code in [problem.code for problem in refused.value.problems]

"""The task group of a job inside anybody's DAG."""

from __future__ import annotations

from pkgutil import resolve_name

import pytest
from airflow.sdk import DAG, Asset, task, task_group
from airflow.sdk.definitions.taskgroup import MappedTaskGroup

from airflow_training import training
from airflow_training.compiler.generic import generic_dag
from airflow_training.documents import TrainingJob
from airflow_training.errors import InputError
from airflow_training.triggers.dependency import DependencyTrigger
from airflow_training.triggers.reconcile import ReconcileTrigger
from airflow_training.triggers.role import RoleTrigger
from tests.airflow.jobs import PYTORCH, job
from tests.airflow.shapes import compare, round_trip, shape


def test_a_group_between_two_tasks_is_the_graph_of_the_golden_file():
    with DAG("between", schedule=None, default_args={"retries": 4}) as dag:

        @task
        def data() -> float:
            return 0.1

        @task
        def deploy() -> None: ...

        training(PYTORCH, params={"lr": data()}) >> deploy()
    compare("group_between_tasks", shape(dag))


def test_a_job_read_from_a_file_keeps_the_folder_that_its_paths_start_from(tmp_path):
    (tmp_path / "digits.yaml").write_text(TrainingJob.model_validate(PYTORCH).to_yaml())
    job = TrainingJob.from_file(tmp_path / "digits.yaml")
    with DAG("elsewhere", schedule=None) as dag:
        training(job)
    assert dag.get_task("digits.plan").source.base_dir == str(tmp_path)


def test_what_follows_the_group_waits_for_the_job_and_not_for_the_teardowns():
    with DAG("x", schedule=None) as dag:

        @task
        def deploy() -> None: ...

        training(PYTORCH) >> deploy()
    assert dag.get_task("deploy").upstream_task_ids == {
        "digits.reconcile",
        "digits.master.run",
        "digits.worker.run",
    }


def test_sensors_and_roles_never_retry_whatever_the_dag_says_and_reconcile_does():
    with DAG("x", schedule=None, default_args={"retries": 4}) as dag:
        training(PYTORCH)
    retries = {t.task_id.partition(".")[2]: t.retries for t in dag.tasks}
    assert retries == {
        "plan": 0,
        "master.run": 0,
        "worker.await_master": 0,
        "worker.run": 0,
        "reconcile": 4,
        "rollup": 4,
        "cleanup": 4,
    }


def test_what_waits_in_a_triggerer_names_a_trigger_that_is_there():
    with DAG("x", schedule=None) as dag:
        training(PYTORCH)
    found = {}
    for each in dag.tasks:
        start = getattr(each, "start_trigger_args", None)
        if start is not None:
            trigger = resolve_name(start.trigger_cls)(**start.trigger_kwargs)
            found[each.task_id.partition(".")[2]] = type(trigger)
    assert found == {
        "reconcile": ReconcileTrigger,
        "master.run": RoleTrigger,
        "worker.await_master": DependencyTrigger,
        "worker.run": RoleTrigger,
    }


def test_reconcile_has_the_highest_priority_of_its_group():
    with DAG("x", schedule=None, default_args={"priority_weight": 50}) as dag:
        training(PYTORCH)
    serialized = round_trip(dag)
    weights = {t.task_id: t.weight_rule.get_weight(_Instance(t)) for t in serialized.tasks}
    waiting = [name for name in weights if ".run" in name or ".await" in name]
    assert all(weights["digits.reconcile"] > weights[name] for name in waiting)


class _Instance:
    """What a weight rule reads of a task instance."""

    def __init__(self, task: object) -> None:
        self.task = task


@pytest.mark.parametrize(
    ("depends_on", "sensors"),
    [
        pytest.param(None, {"worker.await_master"}, id="of-the-framework"),
        pytest.param([], set(), id="none-wanted"),
        pytest.param(
            [{"role": "master", "status": "Running"}, {"role": "master", "status": "PortOpen"}],
            {"worker.await_master"},
            id="one-sensor-per-role",
        ),
    ],
)
def test_each_role_that_is_waited_for_has_one_sensor(depends_on, sensors):
    worker = (
        {"name": "worker"} if depends_on is None else {"name": "worker", "dependsOn": depends_on}
    )
    with DAG("x", schedule=None) as dag:
        training(job(roles=[{"name": "master"}, worker]), group_id="g")
    assert {t for t in dag.task_ids if ".await_" in t} == {f"g.{each}" for each in sensors}


def test_two_groups_in_a_dag_and_groups_in_groups_have_names_of_their_own():
    with DAG("x", schedule=None) as dag:

        @task_group
        def outer() -> None:
            training(PYTORCH, group_id="a")

        outer()
        training(PYTORCH, group_id="b")
    assert dag.get_task("outer.a.reconcile").group_id == "outer.a"
    assert dag.get_task("b.reconcile").trigger_arguments()["watched"] == [
        "b.master.run",
        "b.worker.await_master",
        "b.worker.run",
    ]


def test_a_mapped_group_runs_the_job_once_for_each_set_of_parameters():
    with DAG("x", schedule=None) as dag:
        group = training.partial(PYTORCH, group_id="each").expand(params=[{"lr": 1}, {"lr": 2}])
    assert isinstance(group, MappedTaskGroup)
    compare("mapped_group", shape(dag))


def test_a_group_inside_a_mapped_group_of_the_user():
    with DAG("x", schedule=None) as dag:

        @task_group
        def one(lr: float) -> None:
            training(PYTORCH, params={"lr": lr})

        one.expand(lr=[1, 2])
    assert "one.digits.plan" in dag.task_ids
    round_trip(dag)


def test_outlets_of_the_call_join_those_of_the_document():
    with DAG("x", schedule=None) as dag:
        training(PYTORCH, outlets=[Asset("x-models://mine")], group_id="g")
    assert [a.uri for a in dag.get_task("g.rollup").outlets] == [
        "s3://models/digits/final",
        "x-models://mine",
    ]


def test_one_job_of_a_file_with_several_is_named_after_a_hash(tmp_path):
    path = tmp_path / "two.yaml"
    texts = [TrainingJob.model_validate(job(name)).to_yaml() for name in ("one", "two")]
    path.write_text("---\n".join(texts))
    with DAG("x", schedule=None) as dag:
        training(f"{path}#two")
    assert "two.plan" in dag.task_ids
    with pytest.raises(InputError, match="holds 2 jobs"), DAG("y", schedule=None):
        training(path)


def test_the_generic_dag_maps_its_role_task_over_what_plan_found():
    compare("generic_dag", shape(generic_dag()))

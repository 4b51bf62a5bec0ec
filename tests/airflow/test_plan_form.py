"""What the form of the generic DAG names, and the pools its groups must fit into."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.compiler.form import form_params, job_of_form
from airflow_training.compiler.generic import generic_dag
from airflow_training.compiler.group import training
from airflow_training.errors import InputError
from airflow_training.state.store import Store
from tests.airflow.jobs import shell
from tests.airflow.worker_tasks import POOLED, context


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
@pytest.mark.parametrize(("slots", "fits"), [(3, True), (2, False)])
def test_a_group_must_fit_into_a_pool_that_counts_deferred_tasks(
    store: Store, slots: int, fits: bool
):
    """At once: reconcile, first.run, and of the second role the sensor or the task."""
    store.airflow.save_pools(store.deployment.id(), {"small": slots})
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
    store.airflow.save_pools(store.deployment.id(), {"default_pool": slots})
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
    assert store.airflow.pools("one") == {}
    store.airflow.save_pools("one", {"a": 1, "b": 2})
    store.airflow.save_pools("two", {"a": 7})
    store.airflow.save_pools("one", {"b": 3})
    assert (store.airflow.pools("one"), store.airflow.pools("two")) == ({"b": 3}, {"a": 7})

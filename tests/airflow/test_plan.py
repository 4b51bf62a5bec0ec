"""`plan`, `rollup` and `cleanup` on a worker: a real store, no scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
import yaml
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException
from sqlalchemy import update

from airflow_training.accounts import operations
from airflow_training.admission.launch import launch
from airflow_training.compiler.dag import job_to_dag
from airflow_training.compiler.form import form_params, job_of_form
from airflow_training.compiler.generic import generic_dag
from airflow_training.compiler.group import training
from airflow_training.control.root_cause import cause_lines, cause_of_reason
from airflow_training.control.run_output import RunOutput
from airflow_training.control.subtask_snapshot import write_snapshot
from airflow_training.control.subtasks import new_subtasks
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.templates import render
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.operators.admit import template_variables
from airflow_training.operators.ending import Result
from airflow_training.operators.first_pass import free_roles
from airflow_training.operators.rollup import RollupOperator
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.settings import load_settings
from airflow_training.state.account_models import ReservationRow
from airflow_training.state.account_records import Account, AccountLimit, ReservedRole
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.supervise.runtimes import place_here
from airflow_training.triggers.access import run_key
from tests.airflow.jobs import shell
from tests.airflow.triggers.scenes import TaskInstance
from tests.runtimes.local_runs import alive
from tests.waiting import wait_until


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


def test_who_triggered_a_run_is_who_submitted_it(store: Store):
    seen: Any = {**context(), "dag_run": SimpleNamespace(triggering_user_name="ann", conf={})}
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    reference = plan.execute(seen)
    record = store.run(reference["run"])
    assert record is not None
    assert record.submitted_by == "ann"


def by(user: str, run_id: str = "manual") -> Any:
    seen = context(run_id=run_id)
    return {**seen, "dag_run": SimpleNamespace(triggering_user_name=user, conf={})}


def test_a_run_is_held_in_the_account_of_who_has_triggered_it(store: Store):
    store.accounts.save(Account(name="ann"))
    document = shell("hello", "true", activeDeadlineSeconds=1800)
    plan = job_to_dag(document).get_task("plan")
    reference = plan.execute(by("ann"))
    held = store.reservations.of_run(reference["run"])
    assert held is not None
    assert (held.account, held.hours) == ("ann", Decimal("0.5"))
    assert [(each.role, each.replicas) for each in held.roles] == [("worker", 1)]
    assert plan.execute(by("ann")) == reference
    assert len(store.reservations.live(account="ann")) == 1


def test_what_an_account_may_not_have_is_refused_before_there_is_a_run(store: Store):
    store.accounts.save(Account(name="ann"))
    limit = AccountLimit(account="ann", kind="instance_hours", period="total", amount=Decimal(1))
    store.accounts.set_limit(limit)
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    with pytest.raises(AirflowFailException, match="quota: ann may use 1 instance-hours"):
        plan.execute(by("ann"))
    with pytest.raises(AirflowFailException, match="login: eve has no account here") as refused:
        plan.execute(by("eve"))
    assert "airflow-training accounts add eve" in str(refused.value)
    assert store.runs() == []
    assert store.reservations.live() == []


def test_a_run_of_a_schedule_is_in_no_account(store: Store):
    store.accounts.save(Account(name="ann"))
    reference = job_to_dag(shell("hello", "true")).get_task("plan").execute(by(""))
    assert store.reservations.of_run(reference["run"]) is None


def sent_by_ann(store: Store, uid: str) -> str:
    """Hold it for a run as whoever sends it does; returns the reservation."""
    role = ReservedRole(role="worker", replicas=1, resources={}, node_labels={})
    held = operations.reserve(
        store,
        account="ann",
        roles=[role],
        hours=Decimal(1),
        key="submission",
        wait_hours=Decimal(2),
    )
    store.reservations.attach(held.id, uid)
    return held.id


def test_a_run_that_began_later_than_it_was_held_for_goes_on_in_its_reservation(store: Store):
    store.accounts.save(Account(name="ann"))
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    uid = run_key(store, by("ann")["ti"], group_id="").uid
    held = sent_by_ann(store, uid)
    with store._db.write() as connection:  # two hours later
        connection.execute(update(ReservationRow).values(expires_at=0.0))
    assert operations.settle(store, account="ann") == 1
    assert plan.execute(by("ann"))["run"] == uid
    [live] = store.reservations.live(account="ann")
    assert (live.reservation.id, live.reservation.run) == (held, uid)


def test_a_run_whose_reservation_was_given_up_is_held_anew(store: Store):
    store.accounts.save(Account(name="ann"))
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    uid = run_key(store, by("ann")["ti"], group_id="").uid
    store.reservations.release(sent_by_ann(store, uid))
    assert plan.execute(by("ann"))["run"] == uid
    [live] = store.reservations.live(account="ann")
    assert (live.reservation.run, live.reservation.hours) == (uid, Decimal(24))


def test_the_team_that_pays_stands_in_the_job(store: Store):
    for team in ("red", "blue"):
        store.accounts.save(Account(name=team, kind="team"))
    store.accounts.save(Account(name="ann"))
    for team in ("red", "blue"):
        store.accounts.add_member(team, "ann")
    document = shell("hello", "true")
    with pytest.raises(AirflowFailException, match="several teams"):
        job_to_dag(document).get_task("plan").execute(by("ann"))
    document["metadata"]["annotations"] = {"airflow-training/team": "red"}
    reference = job_to_dag(document).get_task("plan").execute(by("ann"))
    held = store.reservations.of_run(reference["run"])
    assert held is not None
    assert held.team == "red"


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


def test_a_runtime_that_does_not_answer_is_told_with_what_to_do(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    class Away(MemoryRuntime):
        async def check(self, *_: Any, **__: Any) -> Any:
            raise RuntimeUnavailable("the cluster does not answer: connection refused")

    monkeypatch.setattr("airflow_training.operators.admit.runtime_of", lambda _: Away())
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    with pytest.raises(AirflowFailException) as failed:
        plan.execute(context())
    assert "the job could not be checked: the cluster does not answer" in str(failed.value)
    assert "nothing of it was begun: clear this task once it answers" in str(failed.value)
    assert store.runs() == []


def test_the_local_runtime_is_off_unless_an_administrator_allows_it(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("AIRFLOW__TRAINING__ALLOW_LOCAL")
    with pytest.raises(AirflowFailException, match="local runtime is off inside Airflow"):
        job_to_dag(shell("hello", "true")).get_task("plan").execute(context())


@pytest.mark.e2e
def test_a_later_try_of_plan_begins_again_with_a_new_document(store: Store, tmp_path: Path):
    path = tmp_path / "hello.yaml"
    path.write_text(yaml.safe_dump(shell("hello", "echo one")))
    plan = job_to_dag(path).get_task("plan")
    uid = plan.execute(context())["run"]
    path.write_text(yaml.safe_dump(shell("hello", "echo two")))
    assert plan.execute(context(try_number=2))["run"] == uid
    assert "echo two" in str(store.job(uid).document)
    assert store.ledger(uid).job.state not in ("Stopped", "Failed")


@pytest.mark.e2e
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
    assert reference["plan"] == plan.id
    assert len(json.dumps(reference)) < 1024
    [told] = store.events(reference["run"])
    assert (told.event.reason, told.event.data) == ("Planned", {"plan": plan.id})


@pytest.mark.e2e
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
    assert newest.document["cluster"] == "V100-SXM2-32GB"


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


# a DAG run that was stopped --------------------------------------------------------------------------
def test_nothing_of_a_stopped_dag_run_begins_unless_it_is_cleared(store: Store):
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    source = store.deployment.id()
    store.airflow.save_stop(source, dag_id="dag", run_id="manual", reason="wrong data", by="ann")
    with pytest.raises(AirflowFailException, match="was stopped by ann: wrong data"):
        plan.execute(context())
    assert store.runs() == []
    assert plan.execute(context(try_number=2))["job"] == "hello"


def test_a_run_that_was_stored_while_its_dag_run_was_being_stopped_ends(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """Whoever stopped it may have listed the runs before this one was among them."""
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    source = store.deployment.id()

    def launch_late(*args: Any, **options: Any) -> RunRecord:
        made = launch(*args, **options)
        store.airflow.save_stop(source, dag_id="dag", run_id="manual", reason="wrong data", by="")
        return made

    monkeypatch.setattr("airflow_training.operators.admit.launch", launch_late)
    with pytest.raises(AirflowFailException, match="was stopped: wrong data"):
        plan.execute(context())
    (record,) = store.runs()
    assert [each.kind for each in store.requests(record.uid)] == ["stop"]


def test_a_stop_is_of_one_dag_run_and_forgotten_after_a_month(store: Store):
    store.airflow.save_stop("one", dag_id="d", run_id="r", reason="x", by="")
    assert store.airflow.stop_of("one", dag_id="d", run_id="other") is None
    assert store.airflow.stop_of("two", dag_id="d", run_id="r") is None
    later = Store(str(store.url), clock=lambda: store.now() + 31 * 86400)
    later.airflow.save_stop("one", dag_id="d", run_id="other", reason="y", by="")
    assert store.airflow.stop_of("one", dag_id="d", run_id="r") is None
    assert later.airflow.stop_of("one", dag_id="d", run_id="other") is not None


# the first pass --------------------------------------------------------------------------------------
@pytest.fixture
def triggerer_here(store: Store) -> str:
    """Give the store a living triggerer on this very machine; return its place."""
    place = place_here(load_settings())
    store.airflow.save_triggerers(store.deployment.id(), ["here"])
    store.airflow.save_place(store.deployment.id(), host="here", place=place)
    return place


CHAIN = {
    "roles": [
        {"name": "first"},
        {"name": "second", "dependsOn": [{"role": "first"}]},
        {"name": "third", "dependsOn": [{"role": "second", "status": "Complete"}]},
    ]
}
STAYS = "echo $$$$ >> $MARKS; sleep 600"


def marks(folder: Path) -> dict[str, Any]:
    return {"env": [{"name": "MARKS", "value": str(folder / "marks")}]}


def lines(path: Path, count: int) -> list[str]:
    """Return the lines of a file as soon as there are so many."""
    wait_until(lambda: path.exists() and path.read_text().count("\n") >= count)
    return path.read_text().splitlines()


@pytest.mark.e2e
def test_plan_starts_what_may_start_and_rollup_and_cleanup_end_it_side_by_side(
    store: Store, triggerer_here: str, tmp_path: Path
):
    """The training is alive when `plan` has ended, and no lease keeps the reconciler waiting."""
    dag = job_to_dag(shell("hello", STAYS, **CHAIN, **marks(tmp_path)))
    uid = dag.get_task("plan").execute(context())["run"]
    try:
        pids = [int(each) for each in lines(tmp_path / "marks", 2)]
        assert all(alive(pid) for pid in pids)
        assert all(entry.activated for entry in store.ledger(uid).roles.values())
        assert store.ledger(uid).instances[InstanceKey("third", 0)].reason == "WaitingForDependency"
        assert store.lease(uid) is None
    finally:
        with ThreadPoolExecutor() as workers:
            rollup = workers.submit(dag.get_task("rollup").execute, context())
            workers.submit(dag.get_task("cleanup").execute, context()).result()
    with pytest.raises(AirflowFailException, match="Killed"):
        rollup.result()
    assert not any(alive(pid) for pid in pids)
    assert lines(tmp_path / "marks", 2) == [str(pid) for pid in pids]
    assert store.lease(uid) is None


@pytest.mark.e2e
def test_a_cleared_plan_begins_the_new_job_after_the_old_one_has_ended(
    store: Store, triggerer_here: str, tmp_path: Path
):
    dag = job_to_dag(shell("hello", STAYS, **marks(tmp_path)))
    plan = dag.get_task("plan")
    try:
        plan.execute(context())
        [old] = map(int, lines(tmp_path / "marks", 1))
        (tmp_path / "marks").unlink()
        plan.execute(context(try_number=2))
        [new] = map(int, lines(tmp_path / "marks", 1))
        assert (alive(old), alive(new)) == (False, True)
    finally:
        dag.get_task("cleanup").execute(context())
    assert not alive(new)


@pytest.mark.parametrize(
    "places",
    [
        pytest.param({}, id="nobody-told"),
        pytest.param({"there": "elsewhere"}, id="on-another-host"),
        pytest.param({"here": None, "there": "elsewhere"}, id="one-here-and-one-elsewhere"),
        pytest.param({"here": None, "there": ""}, id="one-did-not-tell"),
    ],
)
def test_what_a_triggerer_might_not_see_is_left_to_it(
    store: Store, triggerer_here: str, places: Mapping[str, str | None]
):
    """None: the place of this process."""
    store.airflow.save_triggerers(store.deployment.id(), list(places))
    for host, place in places.items():
        told = triggerer_here if place is None else place
        store.airflow.save_place(store.deployment.id(), host=host, place=told)
    uid = job_to_dag(shell("hello", "true")).get_task("plan").execute(context())["run"]
    record = store.run(uid)
    assert record is not None
    assert record.queued
    assert store.requests(uid) == []


def test_another_environment_is_another_place(airflow_home: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "True")
    here = place_here(load_settings())
    assert here == place_here(load_settings())
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7")
    assert place_here(load_settings()) != here
    monkeypatch.setenv("AIRFLOW__TRAINING__ALLOW_LOCAL", "False")
    assert place_here(load_settings()) == ""


def test_a_group_that_waits_in_a_pool_is_begun_by_reconcile(store: Store, triggerer_here: str):
    store.airflow.save_pools(store.deployment.id(), {"small": 3})
    with DAG("mine", schedule=None) as dag:
        training(shell("hello", "true", **POOLED), default_args={"pool": "small"})
    uid = dag.get_task("hello.plan").execute(context())["run"]
    assert store.requests(uid) == []


@pytest.mark.parametrize(
    ("before", "free"),
    [
        pytest.param("", ["a", "b"], id="only-a-sensor"),
        pytest.param("hello.b.run", ["a"], id="before-the-role"),
        pytest.param("hello.b.await_a", ["a"], id="before-its-sensor"),
    ],
)
def test_a_role_behind_a_task_of_the_users_is_not_asked_for(before: str, free: list[str]):
    waits = {"name": "b", "dependsOn": [{"role": "a"}]}
    with DAG("mine", schedule=None) as dag:
        training(shell("hello", "true", roles=[{"name": "a"}, waits]))
        if before:
            EmptyOperator(task_id="before") >> dag.get_task(before)
    assert free_roles(dag, group_id="hello", roles=["a", "b"]) == free


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

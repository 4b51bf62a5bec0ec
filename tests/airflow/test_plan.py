"""`plan` on a worker: a real store, no scheduler."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pendulum
import pytest
import yaml
from airflow.sdk.exceptions import AirflowFailException

from airflow_training.admission.launch import launch
from airflow_training.compiler.dag import job_to_dag
from airflow_training.documents.templates import render
from airflow_training.errors import RuntimeUnavailable
from airflow_training.operators.admit import template_variables
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import RunRecord, Store
from tests.airflow.jobs import shell
from tests.airflow.worker_tasks import context


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
    monkeypatch.setattr("airflow_training.operators.plan.AWAY_SECONDS", 0)
    plan = job_to_dag(shell("hello", "true")).get_task("plan")
    with pytest.raises(AirflowFailException) as failed:
        plan.execute(context())
    assert "the job could not be checked: the cluster does not answer" in str(failed.value)
    assert "nothing of it was begun: clear this task once it answers" in str(failed.value)
    assert store.runs() == []


def test_a_runtime_that_is_away_for_a_moment_is_waited_for(
    store: Store, monkeypatch: pytest.MonkeyPatch
):
    """The task has no retries: failing at once would fail the DAG run."""
    answers = [RuntimeUnavailable("the cluster does not answer: HTTP 503")] * 2

    class Away(MemoryRuntime):
        async def check(self, *more: Any, **others: Any) -> Any:
            if answers:
                raise answers.pop()
            return await super().check(*more, **others)

    away, pauses = Away(), list[float]()
    monkeypatch.setattr("airflow_training.operators.admit.runtime_of", lambda _: away)
    monkeypatch.setattr("airflow_training.operators.plan.time.sleep", pauses.append)
    reference = job_to_dag(shell("hello", "true")).get_task("plan").execute(context())
    assert store.run(reference["run"]) is not None
    assert pauses == [2, 4]


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

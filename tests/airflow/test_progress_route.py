"""Instances on a cluster report progress: only with their run's token, only what makes sense."""

from __future__ import annotations

import json
import warnings
from typing import Any

import pytest

from airflow_training.spec.resolved import RunKey
from airflow_training.state.store import open_store
from airflow_training.supervise.callbacks import callback_token
from airflow_training.supervise.launch import launch
from tests.builders import entry, job, role

BODY = {"role": "worker", "index": "0", "job_attempt": "0", "attempt": "1", "progress": {"step": 7}}


@pytest.fixture
def client(airflow_home: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of libraries that Airflow imports
        from fastapi.testclient import TestClient

        from airflow_training.web.logs import app
    return TestClient(app)


@pytest.fixture
def uid(airflow_home: Any) -> str:
    """Return a run whose worker 0 is at its second attempt."""
    return a_run()


def a_run(**fields: Any) -> str:
    store = open_store()
    made = launch(
        job(role("worker", 1), runtime="memory"),
        key=RunKey(source="cli", run_id="reporting"),
        store=store,
        controller="here",
        activate_all=True,
    )
    lease = store.acquire(made.uid, owner="a/b/1/1/c")
    assert lease is not None
    old = store.ledger(made.uid)
    new = old.__class__(
        job=old.job,
        roles=old.roles,
        instances={("worker", 0): entry("worker", 0, attempt=1, **fields)},
    )
    store.commit(made.uid, lease=lease, old=old, new=new, events=())
    return made.uid


def post(client: Any, uid: str, body: Any = BODY, *, token: str | None = None) -> int:
    bearer = callback_token(uid) if token is None else token
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    answer = client.post(
        f"/runs/{uid}/progress", content=content, headers={"Authorization": f"Bearer {bearer}"}
    )
    return int(answer.status_code)


def step(uid: str) -> Any:
    return open_store().progress(uid).get(("worker", 0), {}).get("step")


def test_what_an_instance_says_is_in_its_status(client, uid):
    assert post(client, uid) == 204
    assert step(uid) == 7


@pytest.mark.parametrize("token", ["", "wrong", "ä"])
def test_nothing_is_taken_without_the_token(client, uid, token):
    header = f"Bearer {token}".encode()
    answer = client.post(f"/runs/{uid}/progress", json=BODY, headers={"Authorization": header})
    assert answer.status_code == 401
    assert client.post(f"/runs/{uid}/progress", json=BODY).status_code == 401
    assert step(uid) is None


def test_the_token_of_one_run_is_no_good_for_another(client, uid):
    assert post(client, uid, token=callback_token("another")) == 401
    assert post(client, "another", token=callback_token(uid)) == 401
    assert post(client, "another") == 404


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(b"{", 400, id="half"),
        pytest.param(b"[" * 60_000, 400, id="nested"),
        pytest.param([], 400, id="list"),
        pytest.param({**BODY, "index": "x"}, 400, id="index"),
        pytest.param({**BODY, "progress": 3}, 400, id="progress"),
        pytest.param({**BODY, "index": 1}, 404, id="no-such-index"),
        pytest.param({**BODY, "role": "chief"}, 404, id="no-such-role"),
        pytest.param({**BODY, "more": "x" * 70_000}, 413, id="large"),
    ],
)
def test_what_makes_no_sense_is_refused(client, uid, body, code):
    assert post(client, uid, body) == code
    assert step(uid) is None


def test_numbers_that_are_none_are_left_out(client, uid):
    body = {
        **BODY,
        "progress": {"step": float("nan"), "epoch": 2, "metrics": {"loss": 0.5, "a": "b"}},
    }
    assert post(client, uid, body) == 204
    known = open_store().progress(uid)["worker", 0]
    assert (known["step"], known["epoch"], known["metrics"]) == (None, 2, {"loss": 0.5})


def test_an_attempt_that_was_replaced_is_not_heard_any_more(client, uid):
    assert post(client, uid) == 204
    assert post(client, uid, {**BODY, "attempt": "0", "progress": {"step": 99}}) == 204
    assert step(uid) == 7


RECORD = '{"number": 0, "on": "interval"}'


def records(uid: str) -> list[Any]:
    return [dict(each.body) for each in open_store().environment(uid).get(("worker", 0), ())]


def test_the_record_of_the_environment_is_kept(client, uid):
    assert post(client, uid, {**BODY, "environment": RECORD}) == 204
    assert step(uid) == 7
    assert records(uid) == [json.loads(RECORD)]


def test_a_script_that_reports_nothing_leaves_what_its_log_says(client, uid):
    store = open_store()
    store.save_progress(uid, {("worker", 0): {"step": 3}})
    assert post(client, uid, {**BODY, "progress": {}, "environment": RECORD}) == 204
    assert step(uid) == 3
    assert records(uid) == [json.loads(RECORD)]


def test_the_environment_of_a_replaced_attempt_is_dropped(client, uid):
    assert post(client, uid, {**BODY, "attempt": "0", "environment": RECORD}) == 204
    assert records(uid) == []


def test_the_end_of_a_replaced_attempt_whose_instance_stays_is_heard(client):
    uid = a_run(stays="its-pod")
    assert post(client, uid, {**BODY, "attempt": "0", "environment": RECORD}) == 204
    assert records(uid) == [json.loads(RECORD)]
    assert open_store().progress(uid) == {}, "its step is not that of the next attempt"


@pytest.mark.parametrize("environment", [7, {"number": 0}, ["x"]])
def test_an_environment_that_is_no_line_is_refused(client, uid, environment):
    assert post(client, uid, {**BODY, "environment": environment}) == 400

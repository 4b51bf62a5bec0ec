"""Instances on a cluster report progress: only with their run's token, only what makes sense."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_training.admission.launch import launch
from airflow_training.control.model import AttemptHost
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import Store, open_store
from airflow_training.supervise.callbacks import callback_token
from airflow_training.supervise.status import run_status
from airflow_training.web.data import data_page, file_page
from airflow_training.web.environment import environment
from tests.builders import entry, job, role
from tests.examples import examples

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


def a_run(*, key: RunKey | None = None, **fields: Any) -> str:
    store = open_store()
    made = launch(
        job(role("worker", 1), runtime="memory"),
        key=key or RunKey(source="cli", run_id="reporting"),
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
        instances={InstanceKey("worker", 0): entry("worker", 0, attempt=1, **fields)},
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
    return open_store().progress.newest(uid).get(InstanceKey("worker", 0), ProgressReport()).step


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
        pytest.param({**BODY, "index": math.inf}, 400, id="infinite-index"),
        pytest.param({**BODY, "attempt": -math.inf}, 400, id="infinite-attempt"),
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
    known = open_store().progress.newest(uid)[InstanceKey("worker", 0)]
    assert (known.step, known.epoch, known.metrics) == (None, 2, {"loss": 0.5})


def test_an_attempt_that_was_replaced_is_not_heard_any_more(client, uid):
    assert post(client, uid) == 204
    assert post(client, uid, {**BODY, "attempt": "0", "progress": {"step": 99}}) == 204
    assert step(uid) == 7


RECORD = '{"number": 0, "on": "interval"}'


def records(uid: str) -> list[Any]:
    return [
        dict(each.body)
        for each in open_store().environments.of_run(uid).get(InstanceKey("worker", 0), ())
    ]


def test_the_record_of_the_environment_is_kept(client, uid):
    assert post(client, uid, {**BODY, "environment": RECORD}) == 204
    assert step(uid) == 7
    assert records(uid) == [json.loads(RECORD)]


def test_the_software_is_kept_beside_it(client, uid):
    software = json.dumps({"on": "software", "packages": {"torch": "2.4"}})
    assert post(client, uid, {**BODY, "environment": RECORD, "software": software}) == 204
    assert post(client, uid, {**BODY, "environment": RECORD}) == 204
    assert post(client, uid, {**BODY, "software": 3}) == 400
    assert records(uid) == [json.loads(RECORD)]
    assert open_store().environments.software(uid) == {("worker", 0): json.loads(software)}


def test_a_script_that_reports_nothing_leaves_what_its_log_says(client, uid):
    store = open_store()
    store.progress.save(uid, {InstanceKey("worker", 0): ProgressReport(step=3)})
    assert post(client, uid, {**BODY, "progress": {}, "environment": RECORD}) == 204
    assert step(uid) == 3
    assert records(uid) == [json.loads(RECORD)]


def test_the_environment_of_a_replaced_attempt_is_dropped(client, uid):
    assert post(client, uid, {**BODY, "attempt": "0", "environment": RECORD}) == 204
    assert records(uid) == []


def test_the_end_of_a_replaced_attempt_whose_instance_stays_is_heard(client):
    uid = a_run(host=AttemptHost("its-pod"))
    assert post(client, uid, {**BODY, "attempt": "0", "environment": RECORD}) == 204
    assert records(uid) == [json.loads(RECORD)]
    assert open_store().progress.newest(uid) == {}, "its step is not that of the next attempt"


@pytest.mark.parametrize("environment", [7, {"number": 0}, ["x"]])
def test_an_environment_that_is_no_line_is_refused(client, uid, environment):
    assert post(client, uid, {**BODY, "environment": environment}) == 400


NUMBERS = st.one_of(
    st.integers(),
    st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -0.0, 2**63, -(2**63), 10**400, True]),
    st.floats(),
)
TEXTS = st.one_of(
    st.text(max_size=30),
    st.sampled_from(["\x1b[2J", "\0", "a\nb\rc", "\ud800", "x" * 300, "NaN", "-1", "9" * 5000, ""]),
)
DEEP = st.integers(1, 200).map(lambda depth: json.loads("[" * depth + "]" * depth))
ANY = st.recursive(
    st.one_of(st.none(), NUMBERS, TEXTS, DEEP),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXTS, inner, max_size=4)),
    max_leaves=8,
)
LINE = st.dictionaries(
    st.sampled_from(
        ["step", "total_steps", "epoch", "samples", "time", "section", "checkpoint", "subtasks"]
    ),
    st.one_of(NUMBERS, ANY),
).flatmap(
    lambda line: st.dictionaries(TEXTS, st.one_of(NUMBERS, ANY)).map(
        lambda metrics: {**line, "metrics": metrics}
    )
)
POINTS = st.dictionaries(TEXTS, st.lists(st.one_of(st.lists(NUMBERS, min_size=3, max_size=3), ANY)))
FILES = st.fixed_dictionaries(
    {"read": NUMBERS, "known": NUMBERS, "done": NUMBERS},
    optional={
        "newest": st.lists(
            st.one_of(
                st.fixed_dictionaries(
                    {"name": TEXTS, "read": NUMBERS}, optional={"total": NUMBERS}
                ),
                ANY,
            )
        )
    },
)
AGENTS = st.fixed_dictionaries({}, optional={"points": POINTS, "files": FILES})
"""What of a report is the agent's own, as little to be trusted."""
RECORDS = st.one_of(
    ANY, ANY.map(json.dumps), st.just('{"a": ' * 1300), st.just("[" * 8000), st.just("{")
)
TOLD = st.fixed_dictionaries(
    {"rank": NUMBERS, "generation": NUMBERS, "sequence": NUMBERS, "state": TEXTS},
    optional={"step": ANY, "world": ANY, "verified": st.lists(NUMBERS), "group": TEXTS},
)


def mostly(value: Any) -> Any:
    return st.integers(0, 9).flatmap(lambda number: ANY if number == 9 else st.just(value))


HOSTILE = st.fixed_dictionaries(
    {
        "role": mostly("worker"),
        "index": mostly(0),
        "job_attempt": mostly(0),
        "attempt": mostly(1),
        "progress": st.one_of(LINE, AGENTS, TOLD.map(lambda told: {"subtasks": [told]}), ANY),
    },
    optional={
        "environment": RECORDS,
        "software": st.one_of(
            RECORDS, ANY.map(lambda told: json.dumps({"on": "software", "packages": told}))
        ),
        "more": ANY,
    },
)


def pages(store: Store, uid: str) -> Iterator[Any]:
    """Yield what the pages show of what instances say of files and surroundings."""
    state, readings = store.read([uid])[uid], store.progress.data_readings(uid)
    yield data_page(state, readings, now=store.now())
    yield file_page(state, readings, instance=None, text="", limit=1000)
    looks = store.environments.last_two(uid)
    yield environment(state, software=store.environments.software(uid), looks=looks)


def test_whatever_a_holder_of_the_token_says_nothing_breaks(client, uid):
    """The answer says what was wrong with it; no other run is touched, and views stay readable."""
    other = launch(
        job(role("worker", 1), runtime="memory"),
        key=RunKey(source="cli", run_id="other"), store=open_store(), controller="here",
        activate_all=True,
    ).uid  # fmt: skip
    taken = []

    @settings(max_examples=examples(120), deadline=None, suppress_health_check=list(HealthCheck))
    @given(HOSTILE)
    def say(body: Any) -> None:
        code = post(client, uid, body)
        assert code in (204, 400, 404, 413)
        if code != 204:
            return
        taken.append(body)
        store = open_store()
        assert store.progress.newest(uid).keys() <= {("worker", 0)}
        json.dumps(run_status(store, uid), allow_nan=False)
        for page in pages(store, uid):
            page.model_dump_json()
        for point in store.metrics.series(uid):
            assert len(point.name) <= 250
            assert "\0" not in point.name

    say()
    assert taken, "otherwise this tries nothing"
    assert open_store().progress.newest(other) == {}
    assert open_store().metrics.series(other) == []


def test_the_points_of_a_report_are_stored_where_they_make_sense(client, uid):
    odd = [3, [1], [1, "2", 3.0], [1, 2.0, True], [1, math.inf, 3.0], [1, 1 << 70, 3.0]]
    points = {"loss": [[1, 1.0, 9.0], *odd, [2, 2.0, 0.5], [2, 2.0, 0.5]], "a\0" * 400: [[1, 1, 1]]}
    for _ in range(2):
        assert post(client, uid, {**BODY, "progress": {"step": 2, "points": points}}) == 204
    assert open_store().progress.newest(uid)[InstanceKey("worker", 0)] == ProgressReport(step=2)
    loss = open_store().metrics.series(uid, name="loss")
    assert [(each.step, each.at, each.value) for each in loss] == [(1, 1.0, 9.0), (2, 2.0, 0.5)]
    (long,) = {each.name for each in open_store().metrics.series(uid)} - {"loss"}
    assert len(long) == 250
    assert "\0" not in long


def test_the_attempts_of_the_future_are_not_heard(client, uid):
    assert post(client, uid, {**BODY, "attempt": 2}) == 204
    assert step(uid) is None

"""A tuning begins a run for each set of parameters, by who may, once; its trials are shown to who may read them."""

from __future__ import annotations

import dataclasses
import threading
from typing import Any

import pytest

from airflow_training.cli.documents import parse_params
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import open_store
from airflow_training.web.api import tunings
from airflow_training.web.command_runs import _param_text
from tests.state.samples import START, a_job, a_ledger, worker
from tests.waiting import wait_until
from tests.web.conftest import FakeNewRuns, a_run
from tests.web.test_rerun_api import JOB

TUNED = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: fit}
spec:
  framework: custom
  command: [python, fit.py, "{{ params.lr }}", "{{ params.layers }}"]
  roles: [{name: worker}]
  runtime: {name: kubernetes}
  image: fit:1
  dag: {params: {lr: {type: number, default: 0.1}, layers: {type: integer, minimum: 1}}}
"""
LR = {"name": "lr", "values": "0.1, 1e-2"}
LAYERS = {"name": "layers", "values": "1, 2, 3"}


def sent(
    client: Any,
    path: str,
    *parameters: Any,
    document: str = TUNED,
    user: str = "admin",
    **more: Any,
) -> Any:
    body = {"document": document, "tuning": {"parameters": parameters, **more}}
    headers = {"user": user, "Idempotency-Key": "k"}
    return client.post(f"/api/tunings{path}", headers=headers, json=body)


def mistakes(client: Any, *parameters: Any, **more: Any) -> list[tuple[str, str]]:
    answer = sent(client, "/check", *parameters, **more).json()
    assert answer["trials"] == 0
    return [(each["field"], each["message"]) for each in answer["mistakes"]]


def test_each_set_of_parameters_is_a_run_and_asking_again_begins_none(
    client, new_runs: FakeNewRuns
):
    checked = sent(client, "/check", LR, LAYERS).json()
    assert checked == {"mistakes": [], "warnings": [], "trials": 6}
    assert new_runs.begun == {}
    first, second = sent(client, "", LR, LAYERS), sent(client, "", LR, LAYERS)
    assert first.status_code == 202
    assert first.json() == second.json()
    name = first.json()["tuning"]
    assert first.json() == {"tuning": name, "begun": 6, "trials": 6, "why": "", "pending": 0}
    assert list(new_runs.params) == [f"fit-tuning-{name}-{number:03}of006" for number in range(6)]
    assert list(new_runs.params.values()) == [
        {"lr": lr, "layers": layers} for lr in (0.1, 0.01) for layers in (1, 2, 3)
    ]
    assert set(new_runs.begun.values()) == {TUNED}


def test_a_range_is_drawn_from_and_its_ends_are_as_they_were_typed(client, new_runs: FakeNewRuns):
    lr = {"name": "lr", "low": "1.0", "high": "4.0"}
    layers = {"name": "layers", "low": "1", "high": "64", "log": True}
    answer = sent(client, "", lr, layers, trials=7, seed=3)
    assert answer.json()["begun"] == 7
    drawn = list(new_runs.params.values())
    assert all(isinstance(each["lr"], float) and 1 <= each["lr"] <= 4 for each in drawn)
    assert all(isinstance(each["layers"], int) and 1 <= each["layers"] <= 64 for each in drawn)


@pytest.mark.parametrize(
    ("parameters", "more", "field", "message"),
    [
        ([], {}, "space", "names no parameter to vary"),
        ([LAYERS, {"name": "nope", "values": "1"}], {}, "space.nope", "declares no parameter"),
        ([LAYERS, {"name": "lr", "values": "fast"}], {}, "space.lr[0]", "must be of type number"),
        ([{"name": "layers", "values": "0, 1"}], {}, "space.layers[0]", "1"),
        ([LAYERS, {"name": "lr", "values": "1]: ["}], {}, "space.lr", "with commas between them"),
        ([LAYERS, {"name": "lr", "values": " "}], {}, "space.lr", "with commas between them"),
        ([LAYERS, {"name": "lr", "low": "x", "high": "2"}], {}, "space.lr.low", "must be a number"),
        ([LAYERS, {"name": "lr", "low": "3", "high": "2"}], {}, "space.lr", "low must be less"),
        ([LAYERS, {"name": "lr", "low": "1", "high": "2"}], {}, "trials", "say how many to try"),
        ([LAYERS, LAYERS], {}, "space.layers", "is named twice"),
        ([LAYERS, {"name": "lr", "values": ", ".join(map(str, range(30)))}], {}, "trials", "90"),
    ],
)
def test_what_is_wrong_is_told_as_tune_tells_it_and_begins_nothing(
    client, new_runs: FakeNewRuns, parameters: Any, more: Any, field: str, message: str
):
    told = [each for each in mistakes(client, *parameters, **more) if each[0] != "params.layers"]
    assert [where for where, _ in told] == [field]
    assert message in told[0][1]
    assert sent(client, "", *parameters, **more).status_code == 422
    assert new_runs.begun == {}


def test_a_mistake_of_the_document_is_told_with_its_line(client, new_runs: FakeNewRuns):
    wrong = TUNED.replace("{name: worker}", "{name: worker, replicas: many}")
    answer = sent(client, "/check", LR, LAYERS, document=wrong).json()
    assert [(each["field"], each["line"]) for each in answer["mistakes"]] == [
        ("spec.roles[0].replicas", 7)
    ]
    assert sent(client, "", LR, LAYERS, document=wrong).status_code == 422
    assert sent(client, "/check", LR, document=JOB).json()["mistakes"][0]["field"] == "space.lr"
    assert new_runs.begun == {}


def test_trials_do_not_write_over_each_other(client):
    one = f"{TUNED}  output: {{uri: s3://models/fit}}\n"
    [(field, message)] = mistakes(client, LR, LAYERS, document=one)
    assert field == "spec.output.uri"
    assert "each would write over" in message
    each = one.replace("models/fit", "models/{{ run_id }}").replace("{uri: ", '{uri: "')
    each = each.replace(" }}}", ' }}"}')
    assert sent(client, "/check", LR, LAYERS, document=each).json()["trials"] == 6


@pytest.mark.parametrize(
    ("address", "is_shared"),
    [
        ("s3://m/{{ params.lr }}", True),
        ("s3://m/{{ params.lr }}-{{ params.layers }}", False),
        ("s3://m/{{ logical_date }}", True),
        ("s3://m/{{run_id}}", False),
        ("s3://m/run_id", True),
    ],
)
def test_an_address_counts_as_ones_own_by_what_is_put_into_it(
    client, address: str, is_shared: bool
):
    document = f'{TUNED}  output: {{uri: "{address}"}}\n'
    answer = sent(client, "/check", LR, LAYERS, document=document).json()
    fields = [each["field"] for each in answer["mistakes"]]
    assert fields == (["spec.output.uri"] if is_shared else [])


@pytest.mark.parametrize("value", [".inf", "1, .nan", "[1e400]"])
def test_a_value_that_no_run_can_be_told_is_refused(client, new_runs: FakeNewRuns, value: str):
    document = TUNED.replace("lr: {type: number, default: 0.1}", "lr: {default: 0.1}")
    lr = {"name": "lr", "values": value}
    answer = sent(client, "", lr, LAYERS, document=document)
    assert answer.status_code == 422
    assert "must be a finite number" in answer.text
    assert new_runs.begun == {}


def test_trials_that_need_long_are_begun_after_the_answer(
    client, new_runs: FakeNewRuns, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tunings, "_SECONDS_TO_ANSWER", 0.0)
    new_runs.held = threading.Event()
    with client:  # one loop for both requests
        answer = sent(client, "", LR, LAYERS).json()
        assert (answer["begun"], answer["pending"], answer["trials"]) == (1, 5, 6)
        new_runs.held.set()
        wait_until(lambda: len(new_runs.begun) == 6)


def test_an_error_of_one_trial_hides_no_other(client, new_runs: FakeNewRuns):
    new_runs.broken = OSError("the socket is gone")
    answer = sent(client, "", LR, LAYERS).json()
    assert (answer["begun"], answer["trials"]) == (5, 6)
    assert "the socket is gone" in answer["why"]


def test_what_could_not_be_begun_is_said(client, new_runs: FakeNewRuns):
    new_runs.most = 4
    answer = sent(client, "", LR, LAYERS).json()
    assert (answer["begun"], answer["trials"], answer["why"]) == (4, 6, "the server is full")
    new_runs.most = 0
    new_runs.params.clear()
    refused = sent(client, "", LR, LAYERS, seed=1)
    assert (refused.status_code, refused.json()["detail"]) == (503, "the server is full")


@pytest.mark.parametrize(
    "value",
    ["😀", "a\u2028b\x85", 'a"b\\', "{{ run_id }}", "x: [", "\x00", "1", 1.0, None, {"a": ["é"]}],
)
def test_a_command_line_is_told_each_value_as_it_is(value: Any):
    given = parse_params([f"lr={_param_text(value)}"])
    assert not given.problems
    assert given.values == {"lr": value}
    assert type(given.values["lr"]) is type(value)


def test_only_who_may_submit(client, new_runs: FakeNewRuns):
    for path in ("", "/check"):
        for user in ("viewer", "op"):
            assert sent(client, path, LR, user=user).status_code == 403
        assert sent(client, path, LR, user="").status_code == 401
    assert new_runs.begun == {}


def trial(number: int, *, state: str = "Succeeded", dag: str = "digits", **params: Any) -> str:
    job = dataclasses.replace(a_job(), variables={"params": {"seed": 1, **params}})
    ledger = a_ledger(
        worker(0), worker(1), state=state, drained=True, started_at=1.0, finished_at=START
    )
    return a_run(f"fit-tuning-0123456789ab-{number:03}of005", dag=dag, job=job, ledger=ledger).uid


def test_the_trials_are_compared_by_a_metric(client):
    for number, lr in enumerate((0.1, 0.01)):
        trial(number, lr=lr)
    trial(2, lr=1.0, state="Failed")
    trial(3, dag="secret", lr=2.0)
    a_run("fit-tuning-0123456789ab-1x2")
    a_run("fit-tuning-0123456789ab-007of005")
    page = client.get("/api/tunings/0123456789ab?metric=accuracy").json()
    assert [(each["number"], each["params"], each["value"]) for each in page["trials"]] == [
        (0, {"lr": 0.1}, None),
        (1, {"lr": 0.01}, None),
        (2, {"lr": 1.0}, None),
    ]
    assert (page["best"], page["metrics"]) == (None, [])
    assert page["planned"] == 5, "the page tells that trials are missing"
    assert client.get("/api/tunings/ba9876543210").status_code == 404
    assert client.get("/api/tunings/..").status_code in (404, 422)
    assert client.get("/api/tunings/0123456789ab", headers={"user": ""}).status_code == 401


def test_a_value_that_is_no_number_breaks_no_page(client):
    for number, loss in enumerate((float("nan"), 0.25)):
        line = ProgressReport(step=1, time=START, metrics={"loss": loss})
        open_store().progress.save(trial(number, lr=number), {InstanceKey("worker", 0): line})
    page = client.get("/api/tunings/0123456789ab?metric=loss&goal=min").json()
    assert [each["value"] for each in page["trials"]] == [None, 0.25]
    assert page["best"] == 1


def test_the_best_is_the_one_that_tune_would_choose(client):
    for number, (lr, loss) in enumerate(((0.1, 0.5), (0.01, 0.25), (1.0, 0.125))):
        uid = trial(number, lr=lr, state="Failed" if number == 2 else "Succeeded")
        line = ProgressReport(step=1, time=START, metrics={"loss": loss})
        open_store().progress.save(uid, {InstanceKey("worker", 0): line})
    page = client.get("/api/tunings/0123456789ab?metric=loss&goal=min").json()
    assert page["metrics"] == ["loss"]
    assert [each["value"] for each in page["trials"]] == [0.5, 0.25, 0.125]
    assert page["best"] == 1, "the third has failed"
    assert client.get("/api/tunings/0123456789ab?metric=loss&goal=max").json()["best"] == 0

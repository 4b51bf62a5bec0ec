"""Who used how much, of what the user may read."""

from __future__ import annotations

import csv
import dataclasses
import io
from datetime import datetime
from decimal import Decimal
from typing import Any

import pytest

from airflow_training.accounts.prices import PriceList
from airflow_training.accounts.run_bills import bill
from airflow_training.state.account_records import Price
from airflow_training.state.records import UsageSpan
from airflow_training.state.store import open_store
from airflow_training.web.usage import usage_days, usage_sums
from tests.state.samples import a_ledger, take, worker
from tests.web.conftest import FakeRights, a_run

HOUR = 3600.0
SPAN = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-02T00:00:00Z"}
START = 1704067200.0
ASKED = {"cpu": "500m", "memory": "2Gi", "nvidia.com/gpu": "2"}


def a_span(run: str = "r", **more: Any) -> UsageSpan:
    fields = {
        "dag_id": "digits",
        "job": "digits",
        "submitted_by": "ann",
        "resources": ASKED,
        "started_at": START,
        "finished_at": START + HOUR,
    }
    return UsageSpan(run=run, **{**fields, **more})


def sums(*spans: UsageSpan, by: Any = "user", start: float = START, hours: float = 24) -> Any:
    return usage_sums(spans, by=by, teams={"digits": "red"}, start=start, end=start + hours * HOUR)


def test_hours_are_what_was_requested_by_how_long():
    (ann,), _ = sums(a_span(), a_span())
    assert (ann.name, ann.runs, ann.instance_seconds) == ("ann", 1, 2 * HOUR)
    assert (ann.cpu_hours, ann.gpu_hours, ann.memory_gib_hours) == (1.0, 4.0, 4.0)
    assert ann.unrequested_seconds == 0


@pytest.mark.parametrize(
    ("started", "finished", "hours"),
    [
        pytest.param(-2, -1, 0, id="before"),
        pytest.param(-1, 1, 1, id="into"),
        pytest.param(1, 2, 1, id="within"),
        pytest.param(-5, 50, 24, id="over"),
        pytest.param(23, 30, 1, id="out-of"),
        pytest.param(25, 26, 0, id="after"),
    ],
)
def test_only_what_lies_in_the_span_counts(started: int, finished: int, hours: int):
    span = a_span(started_at=START + started * HOUR, finished_at=START + finished * HOUR)
    assert sums(span)[1].instance_seconds == hours * HOUR


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("user", [("bob", None), ("ann", None), ("", None)]),
        ("team", [("", None), ("red", None)]),
        ("job", [("big", "other"), ("digits", "digits"), ("digits", "other")]),
    ],
)
def test_sums_are_by_name_the_largest_first(by: str, names: Any):
    spans = [
        a_span("a"),
        a_span("b", submitted_by="bob", job="big", dag_id="other", finished_at=START + 9 * HOUR),
        a_span("c", submitted_by="", dag_id="other", finished_at=START + 10),
    ]
    found, total = sums(*spans, by=by)
    assert [(each.name, each.dag_id) for each in found] == names
    assert total.runs == 3
    assert total.cpu_hours == pytest.approx(sum(each.cpu_hours for each in found), abs=1e-3)


def test_what_requested_nothing_is_told_apart():
    _, total = sums(a_span(), a_span(resources={}), a_span(resources={"rdma/hca": "1"}))
    assert (total.instance_seconds, total.unrequested_seconds) == (3 * HOUR, 2 * HOUR)
    assert total.cpu_hours == 0.5


def used(run_id: str, *, hours: float = 1.0, dag: str = "digits", **more: Any) -> None:
    """Add a run whose worker ran so long, from an hour after the span's start on."""
    store = open_store()
    uid = a_run(run_id, dag=dag, ledger=a_ledger(), **more).uid
    old = store.ledger(uid)
    ended = worker(
        0, state="succeeded", started_at=START + HOUR, finished_at=START + HOUR + hours * HOUR
    )
    new = dataclasses.replace(old, instances={ended.key: ended})
    lease = take(store, uid, "loop")
    asked = {"worker": ASKED}
    store.commit(uid, lease=lease, old=old, new=new, events=[], resources=asked)


def get(client: Any, user: str = "op", path: str = "usage", **query: Any) -> Any:
    answer = client.get(f"/api/{path}", headers={"user": user}, params={**SPAN, **query})
    assert answer.status_code == 200, answer.text
    return answer


def test_only_runs_that_the_user_may_read_count(client):
    used("mine", submitted_by="ann")
    used("other", dag="secret", hours=2, submitted_by="bob")
    used("typed", dag="", source="cli", hours=3, submitted_by="eve")
    used("foreign", source="another deployment", hours=4)

    def hours(user: str, by: str) -> dict[str, float]:
        found = get(client, user, by=by).json()
        return {each["name"]: each["instance_seconds"] / HOUR for each in found["sums"]}

    assert hours("op", "user") == {"ann": 1}
    assert hours("admin", "user") == {"ann": 1, "bob": 2, "eve": 3}
    assert hours("admin", "team") == {"red": 1, "green": 2, "": 3}
    assert get(client, "op").json()["total"]["runs"] == 1
    assert get(client, "op").json()["basis"] == "requested"


def test_to_see_a_dag_is_less_than_to_read_its_runs(client, monkeypatch):
    used("mine", submitted_by="ann")
    used("other", dag="secret", submitted_by="bob")
    monkeypatch.setattr(FakeRights, "readable", lambda *_: ["digits", "secret"])
    assert [each["name"] for each in get(client).json()["sums"]] == ["ann"]


def test_a_span_that_makes_no_sense_is_refused(client):
    for start, end in (("2024-01-02", "2024-01-01"), ("2020-01-01", "2024-01-01"), ("x", "y")):
        answer = client.get(f"/api/usage?start={start}&end={end}")
        assert answer.status_code == 422, answer.text


def test_without_a_span_it_is_the_last_thirty_days(client):
    used("long ago")
    found = client.get("/api/usage").json()
    days = datetime.fromisoformat(found["end"][:-1]) - datetime.fromisoformat(found["start"][:-1])
    assert days.days == 30
    assert found["sums"] == []


def test_the_table_is_no_formula(client):
    used("first", submitted_by="=HYPERLINK(1)")
    answer = get(client, path="usage.csv")
    assert answer.headers["content-type"].startswith("text/csv")
    (row,) = csv.DictReader(answer.text.splitlines())
    assert row["user"] == "'=HYPERLINK(1)"
    assert float(row["instance_seconds"]) == HOUR
    assert row["basis"] == "requested"
    job = get(client, path="usage.csv", by="job").text.splitlines()
    assert job[0].startswith("job,dag_id,start,end,basis,runs,")
    assert job[1].startswith("digits,digits,2024-01-01T00:00:00.000Z,")


def test_what_was_used_costs_what_it_cost_then():
    prices = PriceList(
        [
            Price(resource="nvidia.com/gpu", valid_from=0.0, hourly=Decimal(2)),
            Price(resource="nvidia.com/gpu", valid_from=START + HOUR, hourly=Decimal(3)),
            Price(resource="cpu", node_label="zone=a", valid_from=0.0, hourly=Decimal(1)),
        ]
    )
    spans = [a_span(role="worker", finished_at=START + 2 * HOUR)]
    asked: Any = {"by": "user", "teams": {}, "prices": prices, "start": START}
    (ann,), total = usage_sums(spans, end=START + 24 * HOUR, **asked)
    assert ann.cost == total.cost == "10.0000"
    assert usage_sums(spans, end=START + HOUR, **asked)[1].cost == "4.0000"
    labels = {("r", "worker"): {"zone": "a"}}
    assert usage_sums(spans, end=START + HOUR, node_labels=labels, **asked)[1].cost == "4.5000"
    assert sums(*spans)[1].cost is None


def test_each_day_of_utc_has_what_ran_in_it():
    spans = [
        a_span("a", started_at=START - 10 * HOUR, finished_at=START + 30 * HOUR),
        a_span("b", started_at=START + 47 * HOUR, finished_at=START + 48 * HOUR),
        a_span("gone", started_at=START - 9 * HOUR, finished_at=START - 8 * HOUR),
    ]
    prices = PriceList([Price(resource="cpu", valid_from=START + 24 * HOUR, hourly=Decimal(1))])
    days = usage_days(spans, start=START + HOUR, end=START + 50 * HOUR, prices=prices)
    assert [(each.name, each.runs, each.instance_seconds / HOUR, each.cost) for each in days] == [
        ("2024-01-01", 1, 23, "0.0000"),
        ("2024-01-02", 2, 7, "3.5000"),
        ("2024-01-03", 0, 0, "0.0000"),
    ]
    total = usage_sums(spans, by="user", teams={}, start=START + HOUR, end=START + 50 * HOUR)[1]
    for part in ("instance_seconds", "cpu_hours", "gpu_hours", "memory_gib_hours"):
        assert sum(getattr(each, part) for each in days) == pytest.approx(getattr(total, part))


def test_days_are_told_with_the_sums(client):
    used("mine", hours=23.5, submitted_by="ann")
    query = {"start": "2024-01-01T00:00:00Z", "end": "2024-01-03T00:00:00Z"}
    found = get(client, **query).json()["days"]
    assert [(each["name"], each["instance_seconds"] / HOUR) for each in found] == [
        ("2024-01-01", 23),
        ("2024-01-02", 0.5),
    ]


def test_the_page_has_money_once_there_are_prices(client):
    used("mine", submitted_by="ann")
    free = get(client).json()
    assert (free["currency"], free["total"]["cost"]) == (None, None)
    for label in ("", "zone=a"):
        price = Price(resource="cpu", node_label=label, valid_from=0.0, hourly=Decimal("0.1"))
        open_store().accounts.set_price(price)
    told = get(client).json()
    assert (told["currency"], told["sums"][0]["cost"]) == ("EUR", "0.0500")
    (row,) = csv.DictReader(get(client, path="usage.csv").text.splitlines())
    assert (row["cost"], row["currency"]) == ("0.0500", "EUR")


def test_whoever_may_see_a_run_sees_what_it_costs_once_there_are_prices(client):
    store = open_store()
    used("mine")
    (run,) = store.runs()
    path = f"dags/digits/trainings/{run.uid}"
    assert get(client, "viewer", path).json()["cost"] is None
    for at, hourly in ((0.0, 2), (START + 1.5 * HOUR, 4)):
        price = Price(resource="nvidia.com/gpu", valid_from=at, hourly=Decimal(hourly))
        store.accounts.set_price(price)
    told = get(client, "viewer", path).json()["cost"]
    assert (told["amount"], told["currency"]) == ("6.0000", "EUR")
    assert told["amount"] == str(bill(store, run.uid).total)
    assert told["final"] is False, "its run has not ended"
    answer = client.get("/api/dags/secret/trainings/x", headers={"user": "viewer"})
    assert answer.status_code == 403


@pytest.mark.parametrize(
    "first", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"]
)
def test_no_name_begins_as_a_formula(client, first):
    used("first", submitted_by=f"{first}cmd|' /C calc'!A0")
    rows = csv.reader(io.StringIO(get(client, path="usage.csv").text, newline=""))
    assert not [cell for row in rows for cell in row if cell.startswith(first)]

"""A bill adds up to the ledger, at the prices of its time, whatever happened to the run."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.accounts.bills import Bill, bill_csv, bill_rows
from airflow_training.accounts.prices import PriceList
from airflow_training.control.attempts import AttemptId
from airflow_training.control.usage import AttemptUsage
from airflow_training.documents.instances import InstanceKey
from tests.accounts.samples import GPU, HOUR, a_price, an_attempt

JANUARY = 1_767_225_600.0
"""2026-01-01T00:00:00Z."""
DAY = 86_400.0


def rows(attempts, prices=(), *, until=JANUARY + 400 * DAY, labels=None):
    return bill_rows(attempts, PriceList(prices), node_labels=labels or {}, until=until)


def test_an_instance_costs_itself_and_all_that_it_requests():
    attempt = an_attempt(resources={"cpu": "500m", "memory": "2Gi", GPU: "2", "disk": "9"})
    prices = [
        a_price("1", "instance"),
        a_price("0.10", "cpu"),
        a_price("0.01", "memory"),
        a_price("2.50"),
    ]
    (row,) = rows([attempt], prices)
    assert row.hourly == Decimal("6.07")
    assert (row.instance_seconds, row.gpu_seconds) == (3600, 7200)
    assert row.amount == Decimal("6.07")
    assert [part.resource for part in row.parts] == ["cpu", "instance", "memory", GPU]


def test_an_instance_that_ended_in_the_second_of_its_start_is_on_the_bill():
    (row,) = rows([an_attempt(seconds=0.0)], [a_price("1", "instance")])
    assert (row.role, row.instance_seconds, row.amount) == ("worker", 0, 0)


def test_what_was_used_before_a_price_changed_keeps_the_old_one():
    attempt = an_attempt(start=JANUARY + DAY, seconds=2 * HOUR)
    prices = [a_price("1"), a_price("3", since=JANUARY + DAY + HOUR)]
    assert [(row.hourly, row.amount) for row in rows([attempt], prices)] == [(1, 1), (3, 3)]
    later = [*prices, a_price("9", since=JANUARY + 30 * DAY)]
    assert rows([attempt], later) == rows([attempt], prices)


def test_nodes_with_a_label_have_their_own_price():
    prices = [a_price("2"), a_price("5", label="gpu.product=H100"), a_price("3", since=1.0)]
    h100 = {"worker": {"gpu.product": "H100", "zone": "a"}}
    t4 = {"worker": {"gpu.product": "T4"}}
    assert [rows([an_attempt()], prices, labels=each)[0].hourly for each in (h100, t4, {})] == [
        5, 3, 3,
    ]  # fmt: skip


def test_what_has_no_price_costs_nothing_and_is_on_the_bill():
    (row,) = rows([an_attempt()])
    assert (row.amount, row.gpu_seconds) == (0, 3600)


def test_a_month_ends_at_midnight_in_utc():
    attempt = an_attempt(start=JANUARY - HOUR, seconds=3 * HOUR)
    found = rows([attempt], [a_price("1")])
    assert [(row.month, row.amount) for row in found] == [("2025-12", 1), ("2026-01", 2)]


def test_the_same_attempt_told_twice_counts_once():
    attempt = an_attempt()
    assert rows([attempt, attempt, an_attempt(attempt=1)]) == rows([attempt, an_attempt(attempt=1)])


def test_what_runs_counts_up_to_the_time_of_the_bill_and_not_beyond():
    attempt = an_attempt(start=JANUARY, runs=True)
    stays = an_attempt(1, start=JANUARY, seconds=9 * HOUR)
    (row,) = rows([attempt, stays], until=JANUARY + HOUR)
    assert row.instance_seconds == 7200
    assert rows([attempt], until=JANUARY) == ()


def a_bill(found):
    return Bill(
        run="r" * 20, run_id="tuesday", job="digits", account="alice", team="", currency="EUR",
        until=JANUARY, final=True, rows=found,
    )  # fmt: skip


def test_the_table_for_spreadsheets_ends_with_the_sum_of_its_rows():
    attempts = [an_attempt(), an_attempt(role="evaluator", seconds=1.5, resources={})]
    bill = a_bill(rows(attempts, [a_price("0.3333")]))
    table = [*csv.DictReader(io.StringIO(bill_csv(bill)))]
    assert [each["role"] for each in table] == ["evaluator", "worker", ""]
    assert sum(Decimal(each["amount"]) for each in table[:-1]) == Decimal(table[-1]["amount"])
    assert table[-1]["instance_seconds"] == "3601.500"
    document = bill.to_json()
    assert document["total"] == table[-1]["amount"] == "0.3333"
    assert all(isinstance(each["amount"], str) for each in document["rows"])


@st.composite
def histories(draw):
    """Draw what kills, restarts and pauses leave in the ledger: attempts one after another, the last may run."""
    found = []
    for index in range(draw(st.integers(1, 4))):
        at = JANUARY + draw(st.floats(0, 50 * DAY))
        for number in range(draw(st.integers(0, 5))):
            at += draw(st.sampled_from([0.0, 0.5, 30.0, 4 * DAY]))  # back-off, or a pause
            seconds = draw(st.floats(0, 3 * DAY))
            found.append(
                AttemptUsage(
                    key=InstanceKey(draw(st.sampled_from(["worker", "ps"])), index),
                    attempt_id=AttemptId(job_attempt=number // 2, attempt=number % 2),
                    started_at=at,
                    finished_at=at + seconds,
                    resources=draw(st.sampled_from([{}, {GPU: "2"}, {"cpu": "3", GPU: "1"}])),
                    seconds=seconds,
                )
            )
            at += seconds
    return found


PRICES = st.lists(
    st.builds(
        a_price,
        st.sampled_from(["0", "0.0123", "2.5", "40"]),
        st.sampled_from([GPU, "cpu", "instance"]),
        since=st.floats(JANUARY - DAY, JANUARY + 60 * DAY),
    ),
    max_size=6,
)


def check_adds_up(history, prices, until, replays):
    seen = [each for each in history if each.started_at < until]
    ledger = sum(max(0.0, min(each.finished_at or until, until) - each.started_at) for each in seen)
    found = rows([*seen, *seen[:replays]], prices, until=until)
    bill = a_bill(found)
    assert abs(float(bill.instance_seconds) - ledger) < 1.0
    assert bill.total == sum((row.amount for row in found), Decimal(0))
    exact = sum((row.hourly * row.instance_seconds / 3600 for row in found), Decimal(0))
    assert abs(bill.total - exact) <= Decimal("0.0001") * len(found)
    # a bill only grows, and of what is over it never changes
    assert a_bill(rows(seen, prices, until=until + DAY)).total >= bill.total
    end = max((each.finished_at or 0 for each in seen), default=until)
    assert rows(seen, prices, until=end + DAY) == rows(seen, prices, until=end + 9 * DAY)


@given(histories(), PRICES, st.floats(JANUARY, JANUARY + 80 * DAY), st.integers(0, 5))
@settings(max_examples=60)
def test_a_bill_adds_up_to_the_ledger(history, prices, until, replays):
    check_adds_up(history, prices, until, replays)


@pytest.mark.soak
@given(histories(), PRICES, st.floats(JANUARY, JANUARY + 80 * DAY), st.integers(0, 5))
@settings(max_examples=5000)
def test_every_bill_adds_up_to_the_ledger(history, prices, until, replays):
    check_adds_up(history, prices, until, replays)

"""What is said while the store is away: one line, and one when it is back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from airflow_training.errors import RuntimeUnavailable
from airflow_training.state.outage import Outage
from airflow_training.state.store import Store
from airflow_training.supervise import retrying

AWAY = RuntimeUnavailable("the store does not answer: database is locked")


def test_an_outage_is_one_line_and_its_end_another(caplog):
    now = [100.0]
    outage = Outage(clock=lambda: now[0])
    outage.wrote()
    for _ in range(300):
        outage.record_failure(AWAY)
        now[0] += 0.5
        outage.wrote()  # some writes go through: it is not back
    now[0] += 15.0
    for _ in range(3):
        outage.wrote()
    outage.record_failure(AWAY)
    first, end, second = caplog.messages
    assert first == second
    assert "database is locked" in first
    assert end == "the store answers again, after 150 s"
    assert not any(record.exc_info for record in caplog.records)


async def test_a_call_that_is_tried_again_and_again_is_told_once(caplog, monkeypatch):
    monkeypatch.setattr(retrying, "retry_delay", lambda _: 0.0)
    store, failures = cast("Store", SimpleNamespace(outage=Outage())), [AWAY] * 9

    def call() -> int:
        if failures:
            raise failures.pop()
        return 7

    assert await retrying.retrying(store, call) == 7
    (record,) = caplog.records
    assert not record.exc_info


def test_a_mistake_of_ours_shows_where_it_was_made(caplog):
    outage = Outage()
    for _ in range(3):
        outage.record_failure(KeyError("attempt"))
    (record,) = caplog.records
    assert record.exc_info

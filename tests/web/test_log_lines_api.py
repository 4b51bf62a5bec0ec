"""Logs by lines: all instances by time, only what is serious, the next error, line number n; bounded."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.state.store import RunRecord
from airflow_training.web.api import log_lines
from tests.state.samples import START, a_ledger, worker
from tests.web.conftest import FakeLogs, a_run


@pytest.fixture
def run(airflow_home: Any) -> RunRecord:
    running = [worker(each, desired=True, state="running", started_at=START) for each in (0, 1)]
    return a_run(ledger=a_ledger(*running, state="Running"))


def ask(client: Any, run: RunRecord, what: str, **query: Any) -> Any:
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log/{what}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(page: Any) -> list[str]:
    return [f"{each['index']} {each['text'][20:]}" for each in page["lines"]]


def stamped(second: int, text: str) -> bytes:
    return f"2026-01-01T00:{second // 60:02}:{second % 60:02} {text}\n".encode()


def test_lines_of_all_instances_are_read_by_time_in_both_directions(
    client, run, logs: FakeLogs, monkeypatch
):
    monkeypatch.setattr(log_lines, "_LEAST_WINDOW", 100)
    monkeypatch.setattr(log_lines, "_WINDOWS_BYTES", 200)
    for index in (0, 1):
        lines = (stamped(2 * number + index, f"step {number}") for number in range(40))
        logs.texts[f"worker-{index}"] = b"".join(lines)
    expected = [f"{index} step {number}" for number in range(40) for index in (0, 1)]
    page = ask(client, run, "lines", after="begin")
    found = texts(page)
    while page["lines"]:
        page = ask(client, run, "lines", after=page["after"])
        found += texts(page)
    assert found == expected
    page = ask(client, run, "lines")
    found = texts(page)
    assert found[-1] == expected[-1]
    while not page["begins"]:
        page = ask(client, run, "lines", before=page["before"])
        found = texts(page) + found
    assert found == expected
    assert texts(ask(client, run, "lines", role="worker", index=1))[-1] == "1 step 39"


def test_what_is_written_later_follows_the_end(client, run, logs: FakeLogs):
    logs.over = False
    logs.texts = {"worker-0": stamped(1, "a"), "worker-1": stamped(2, "b") + b"2026-01-01T00:0"}
    page = ask(client, run, "lines")
    assert (texts(page), page["eof"]) == (["0 a", "1 b"], False)
    page = ask(client, run, "lines", after=page["after"])
    assert texts(page) == []
    logs.texts["worker-0"] += stamped(4, "d")
    logs.texts["worker-1"] += b"0:03 c\n"
    assert texts(ask(client, run, "lines", after=page["after"])) == ["1 c", "0 d"]


def test_only_what_is_serious_is_shown_where_that_is_asked(client, run, logs: FakeLogs):
    trace = b"Traceback (most recent call last):\n  in step\nValueError: bad\n"
    logs.texts["worker-0"] = stamped(1, "ok") * 20_000 + stamped(2, "WARNING slow") + trace
    logs.texts["worker-1"] = stamped(3, "fine")
    found: list[Any] = []
    page = ask(client, run, "lines", severity="warning")
    while True:
        found = page["lines"] + found
        if page["begins"]:
            break
        page = ask(client, run, "lines", severity="warning", before=page["before"])
    assert [each["severity"] for each in found] == ["warning", "error", "error", "error"]
    errors = ask(client, run, "lines", severity="error", role="worker", index=0)["lines"]
    assert [each["text"] for each in errors] == trace.decode().splitlines()
    offset = errors[0]["offset"]
    assert logs.texts["worker-0"][offset:].startswith(b"Traceback")


def test_the_next_error_is_searched_bit_by_bit(client, run, logs: FakeLogs, monkeypatch):
    monkeypatch.setattr(log_lines, "_SEARCHED_BYTES", 1000)
    logs.text = b"fine\n" * 400 + b"ValueError: bad\nfine\n"
    at, asked = 0, 0
    while True:
        found = ask(client, run, "next-error", role="worker", index=0, offset=at)
        asked += 1
        if found["offset"] is not None or found["ends"]:
            break
        at = found["searched"]
    assert (found["offset"], asked) == (2000, 3)
    rest = ask(client, run, "next-error", role="worker", index=0, offset=2016)
    assert (rest["offset"], rest["ends"]) == (None, True)


def test_the_previous_error_is_searched_bit_by_bit(client, run, logs: FakeLogs, monkeypatch):
    monkeypatch.setattr(log_lines, "_SEARCHED_BYTES", 1000)
    logs.text = b"ValueError: bad\n" + b"fine\n" * 400
    before, asked = len(logs.text), 0
    while True:
        found = ask(client, run, "next-error", role="worker", index=0, before=before)
        asked += 1
        if found["offset"] is not None or found["ends"]:
            break
        assert found["searched"] < before
        before = found["searched"]
    assert found["offset"] == 0
    assert asked > 1
    rest = ask(client, run, "next-error", role="worker", index=0, before=0)
    assert (rest["offset"], rest["ends"]) == (None, True)


def test_of_very_many_logs_some_are_read_at_a_time(client, run, logs: FakeLogs, monkeypatch):
    monkeypatch.setattr(log_lines, "_MOST_LOGS", 1)
    logs.text = stamped(1, "a")
    assert texts(ask(client, run, "lines", role="worker", first=1, count=1)) == ["1 a"]
    assert texts(ask(client, run, "lines", role="worker", first=0, count=1)) == ["0 a"]
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log/lines?role=worker")
    assert answer.status_code == 422
    assert "2 logs are more than 1" in answer.text
    assert "first and count" in answer.text


def test_a_line_is_found_by_its_number(client, run, logs: FakeLogs, monkeypatch):
    monkeypatch.setattr(log_lines, "_COUNTED_BYTES", 1)
    logs.text = b"x" * 99 + b"\n" + b"line\n" * 500_000
    place = ask(client, run, "line", role="worker", index=0, number=400_000)
    assert (place["offset"], place["ends"]) == (None, False)
    while place["offset"] is None:
        place = ask(client, run, "line", role="worker", index=0, number=400_000)
    assert place["offset"] == 100 + 5 * 399_998
    beyond = ask(client, run, "line", role="worker", index=0, number=600_000)
    while not beyond["ends"]:
        beyond = ask(client, run, "line", role="worker", index=0, number=600_000)
    assert (beyond["offset"], beyond["lines"]) == (None, 500_001)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("lines?after=junk", 422),
        ("lines?before=bm90IHppcA==", 422),
        ("lines?severity=loud", 422),
        ("lines?role=worker&first=0&count=0", 422),
        ("line?role=worker&index=0&number=0", 422),
        ("line?role=worker&index=7&number=1", 404),
        ("next-error?role=worker&index=7", 404),
    ],
)
def test_what_makes_no_sense_is_refused(client, run, query: str, code: int):
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log/{query}")
    assert answer.status_code == code, answer.text

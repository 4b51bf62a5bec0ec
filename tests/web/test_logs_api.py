"""Logs by bytes: whole lines, from the end too, and a download that changes nothing."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from airflow_training.documents.resolved import RunKey
from airflow_training.state.store import RunRecord, open_store
from tests.state.samples import START, a_job, a_ledger, worker
from tests.web.conftest import FakeLogs, a_run

LINES = b"".join(b"line %d\n" % number for number in range(1000))


@pytest.fixture
def run(airflow_home: Any) -> RunRecord:
    running = worker(0, desired=True, state="running", started_at=START)
    return a_run(ledger=a_ledger(running, worker(1), state="Running"))


def page(client: Any, run: RunRecord, **query: Any) -> Any:
    query = {"role": "worker", "index": 0, **query}
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_pages_of_a_log_are_whole_lines_that_join(client, run, logs: FakeLogs):
    logs.text, found, offset = LINES, "", 0
    while True:
        part = page(client, run, offset=offset, size=1000)
        assert part["start"] == offset
        assert part["text"].endswith("\n")
        found, offset = found + part["text"], part["end"]
        if part["eof"]:
            break
    assert found.encode() == LINES
    assert offset == len(LINES)


def test_a_negative_offset_counts_from_the_end(client, run, logs: FakeLogs):
    logs.text = LINES
    part = page(client, run, offset=-20)
    assert (part["text"], part["end"], part["eof"]) == ("line 998\nline 999\n", len(LINES), True)
    assert part["start"] == len(LINES) - 18
    assert page(client, run, offset=-1_000_000)["start"] == 0
    logs.text = b"x" * 5000 + b"\n"
    assert page(client, run, offset=-100)["text"] == "x" * 99 + "\n"


def test_a_line_that_is_being_written_waits(client, run, logs: FakeLogs):
    logs.text, logs.over = b"one\ntw", False
    part = page(client, run)
    assert (part["text"], part["end"], part["eof"]) == ("one\n", 4, False)
    part = page(client, run, offset=4)
    assert (part["text"], part["end"], part["eof"]) == ("", 4, False)
    logs.text = b"one\ntwo"
    logs.over = True
    part = page(client, run, offset=4)
    assert (part["text"], part["end"], part["eof"]) == ("two", 7, True)


@pytest.mark.parametrize("letter", ["x", "ä", "好", "😀"])
def test_a_line_that_is_longer_than_a_page_is_cut_between_characters(
    client, run, logs: FakeLogs, letter: str
):
    logs.text = letter.encode() * 100 + b"\n"
    found, offset = "", 0
    while offset < len(logs.text):
        part = page(client, run, offset=offset, size=7)
        assert part["end"] > offset
        found, offset = found + part["text"], part["end"]
    assert found == letter * 100 + "\n"


def test_bytes_that_are_no_text_are_replaced_and_counted(client, run, logs: FakeLogs):
    logs.text = b"\xff\xfe\n" + b"\x80" * 9
    part = page(client, run, size=5)
    assert (part["text"], part["end"]) == ("\ufffd\ufffd\n", 3)
    assert page(client, run, offset=3, size=5)["end"] == 8


def test_a_download_is_the_log_byte_for_byte(client, run, logs: FakeLogs):
    logs.text = bytes(range(256)) * 3000
    path = f"/api/dags/digits/trainings/{run.uid}/log/download?role=worker&index=0"
    answer = client.get(path)
    assert answer.content == logs.text
    assert "digits-worker-0.0.log" in answer.headers["content-disposition"]


@pytest.mark.parametrize(
    "name", ['a"; filename="b.exe', "a\r\nSet-Cookie: b=c", "../../etc/passwd", "a;b", "\u202egpj.exe"]
)  # fmt: skip
def test_the_name_of_a_download_is_nothing_but_a_name(client, airflow_home, name: str):
    running = worker(0, desired=True, state="running", started_at=START)
    run = open_store().create_run(
        RunKey(source="here", dag_id="digits", run_id="named"),
        dataclasses.replace(a_job(), name=name),
        a_ledger(running, state="Running"),
        controller="here",
        queue=False,
    )
    path = f"/api/dags/digits/trainings/{run.uid}/log/download?role=worker&index=0"
    answer = client.get(path)
    assert re.fullmatch(r'attachment; filename="[\w.-]+"', answer.headers["content-disposition"])
    assert "set-cookie" not in answer.headers


def test_an_instance_that_never_ran_has_an_empty_log(client, run):
    part = page(client, run, index=1)
    assert (part["text"], part["eof"]) == ("", False)


@pytest.mark.parametrize(
    ("query", "code"),
    [
        ("role=chief&index=0", 404),
        ("role=worker&index=7", 404),
        ("role=worker&index=0&attempt=3", 404),
        ("role=worker&index=0&size=9999999", 422),
        ("role=worker", 422),
    ],
)
def test_what_there_is_not_is_told(client, run, query: str, code: int):
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/log?{query}")
    assert answer.status_code == code


def test_a_page_says_which_of_its_lines_are_errors(client, run, logs: FakeLogs):
    trace = "Traceback (most recent call last):\n  in step\ntorch.Strange: bad\n"
    logs.text = f"0 errors\n{trace}ok\nValueError: bad\n".encode()
    whole = page(client, run)
    assert (whole["errors"], whole["inside"]) == ([1, 2, 3, 5], False)
    part = page(client, run, size=len("0 errors\n") + 40)
    assert (part["errors"], part["inside"]) == ([1], True)
    rest = page(client, run, offset=part["end"], inside=True)
    assert rest["errors"] == [0, 1, 3]

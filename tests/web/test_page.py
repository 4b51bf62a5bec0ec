"""The page behind the link "Instance logs", as a browser gets it."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from airflow_training.control.model import InstanceEntry
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.records import RunRecord, RunState
from airflow_training.web.page import instances_page
from tests.state.samples import START, a_job, a_key, a_ledger, worker

TASK = {"dag_id": "digits", "run_id": "manual__2026+00:00", "task_id": "worker.run"}


def page(*entries: InstanceEntry, role: str | None = None, **job: Any) -> str:
    """Return the page of a run with these instances."""
    record = RunRecord(
        uid="0",
        key=a_key("manual__2026+00:00"),
        job="digits",
        namespace="default",
        runtime="local",
        controller="here",
        state="Running",
        condition="Running",
        submitted_at=START,
        finished_at=None,
        queued=False,
        tombstone=False,
        document_digest="",
    )
    ledger = a_ledger(*entries, **job)
    state = RunState(record=record, job=a_job(), ledger=ledger, lease=None, last_seq=0)
    return instances_page(state, role=role, query=TASK)


def links(html: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<a href="([^"]*)"', html)]


def test_each_attempt_has_a_log_and_the_newest_comes_first():
    assert links(page(worker(1, attempt=1))) == [
        "log?dag_id=digits&run_id=manual__2026%2B00%3A00&task_id=worker.run"
        f"&role=worker&index=1&attempt={attempt}"
        for attempt in (1, 0)
    ]


def test_a_role_task_lists_the_instances_of_its_role_only():
    master = InstanceEntry(key=InstanceKey("master", 0))
    assert "master-0" in page(master, worker(0))
    assert "master-0" not in page(master, worker(0), role="worker")


def test_the_page_follows_a_job_until_it_has_ended():
    assert 'http-equiv="refresh"' in page(worker(0), state="Running")
    assert 'http-equiv="refresh"' not in page(worker(0), state="Failed")


def test_before_the_first_instance_the_page_says_so():
    assert "No instance was created yet." in page()


def test_what_an_instance_says_of_itself_is_text_and_never_markup():
    said = page(worker(0, reason="Error", message="<script>alert(1)</script>"))
    assert "<script>" not in said
    assert "&lt;script&gt;alert(1)&lt;/script&gt; (Error)" in said


def test_words_come_before_the_one_that_names_their_kind():
    said = page(
        worker(0, reason="Error", message="step 7\nKeyError: 'label'\n"),
        worker(1, reason="NodeLost"),
        state="Failed",
        reason="InstanceFailed",
        message="worker-0: exit code 1: KeyError: 'label'; backoffLimit 0 is used up",
    )
    rows = [unescape(each) for each in re.findall("<td>([^<]*)", said)]
    assert "KeyError: 'label' (Error)" in rows
    assert "NodeLost" in rows
    assert (
        "worker-0: exit code 1: KeyError: 'label'; backoffLimit 0 is used up (InstanceFailed)"
        in unescape(said)
    )

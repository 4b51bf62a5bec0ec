"""What agents in pods told, as the adapter asks for it every second."""

from __future__ import annotations

import json

from airflow_training.documents.instances import InstanceKey
from airflow_training.supervise.callback_reports import PodReports
from tests.builders import job

KEY, OTHER = InstanceKey("worker", 0), InstanceKey("worker", 1)


def line(on: str, number: int) -> str:
    return json.dumps({"on": on, "turn": {"pod": "p", "number": number}})


def test_ends_are_remembered_and_what_is_awaited_comes_after_them(stage):
    uid = stage.launch(job(runtime="memory"))
    reports = PodReports(stage.store)
    assert reports.of(uid, ()) == {}
    stage.store.environments.save(uid, {KEY: [line("exit", 0)], OTHER: [line("interval", 0)]})
    end = {"turn": {"pod": "p", "number": 0}}
    for _ in range(2):
        assert reports.of(uid, ()) == {KEY: [end]}
    stage.store.environments.save(uid, {KEY: [line("start", 1)]})
    assert reports.of(uid, ()) == {KEY: [end]}
    assert reports.of(uid, {KEY}) == {KEY: [end, json.loads(line("start", 1))]}

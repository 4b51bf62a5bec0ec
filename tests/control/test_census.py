"""The census of a decision in the making is that of its instances, whatever was changed in between."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.control.census import Census, HeadCounts
from airflow_training.control.decide import decide
from airflow_training.control.draft import Draft
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.observations import Observations
from airflow_training.documents.instances import InstanceKey
from tests.builders import job, role


def groups(census: Census) -> dict[str, set[tuple[object, int]]]:
    return {name: set(found) for name, found in census.items()}


def test_changes_after_the_first_count_are_counted():
    spec = job(role("master", chief=True), role("worker", 3))
    started = decide(spec, new_ledger(spec, now=0.0, activate_all=True), (), Observations(), 1.0)
    draft = Draft(spec, started.new_ledger, now=2.0, generation=1)
    assert sum(number for _, number in draft.census["worker"]) == 3
    first, second, _ = draft.instances_of("worker")
    draft.put(replace(first, retired=True))
    draft.put(replace(second, joining=True))
    draft.put(replace(draft.instances_of("master")[0], avoid_nodes=("n1",)))
    draft.put(replace(first, key=InstanceKey("worker", 7)))
    assert sum(number for _, number in draft.census["worker"]) == 2
    assert groups(draft.census) == groups(HeadCounts(draft.instances.values()).census())

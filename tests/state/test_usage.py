"""Seconds and resources of every attempt, without gaps and without counting twice."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry, KeptInstance, Ledger, RaisedMemory
from airflow_training.control.usage import AttemptUsage, ResourceUsage
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import Store
from airflow_training.state.usage import totals
from tests.builders import with_attempt_id
from tests.state.samples import START, Clock, a_ledger, add_run, end_run, take, worker

RESOURCES = {"worker": {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "2"}}


class Writer:
    """A lease holder that commits one worker after another."""

    def __init__(self, store: Store, uid: str, owner: str) -> None:
        self.store, self.uid = store, uid
        self.lease = take(store, uid, owner)
        self.ledger = store.ledger(uid)

    def commit(self, *entries: InstanceEntry, resources: Any = RESOURCES) -> None:
        new = dataclasses.replace(
            self.ledger, instances={InstanceKey(e.role, e.index): e for e in entries}
        )
        self.commit_ledger(new, resources=resources)

    def commit_ledger(self, new: Ledger, *, resources: Any = RESOURCES) -> None:
        self.store.commit(
            self.uid, lease=self.lease, old=self.ledger, new=new, events=[], resources=resources
        )
        self.ledger = new


def spans(store: Store, uid: str) -> list[tuple[int, int, float, bool]]:
    """Return (index, attempt, seconds, still open)."""
    return [
        (each.index, each.attempt, each.seconds, each.finished_at is None)
        for each in store.usage.of_run(uid)
    ]


@pytest.fixture
def uid(store: Store) -> str:
    return add_run(store).uid


def test_an_attempt_counts_from_its_start_to_its_end(store: Store, uid: str, clock: Clock):
    writer = Writer(store, uid, "a")
    writer.commit(worker(0, desired=True))
    assert store.usage.of_run(uid) == []
    running = worker(0, state="running", started_at=START + 1)
    writer.commit(running)
    clock.advance(5)
    assert spans(store, uid) == [(0, 0, 4.0, True)]
    writer.commit(dataclasses.replace(running, state="succeeded", finished_at=START + 4))
    clock.advance(100)
    assert store.usage.of_run(uid) == [
        AttemptUsage(
            key=InstanceKey("worker", 0),
            attempt_id=AttemptId(),
            started_at=START + 1,
            finished_at=START + 4,
            resources=RESOURCES["worker"],
            seconds=3.0,
        )
    ]


def test_an_attempt_that_asks_for_more_memory_is_told_with_that(store: Store, uid: str):
    writer = Writer(store, uid, "a")
    first = worker(0, state="running", started_at=START + 1)
    writer.commit(first)
    raised = RaisedMemory(3 << 30, since_attempt=1)
    failed = dataclasses.replace(first, state="failed", finished_at=START + 2, memory=raised)
    writer.commit(failed)
    second = worker(0, attempt=1, state="running", started_at=START + 3)
    writer.commit(dataclasses.replace(second, memory=raised))
    assert [each.resources["memory"] for each in store.usage.of_run(uid)] == ["1Gi", "3Gi"]


def test_a_crash_of_the_holder_loses_and_doubles_nothing(
    store: Store, uid: str, clock: Clock, open_another: Callable[[], Store]
):
    running = worker(0, state="running", started_at=START)
    Writer(store, uid, "crashes").commit(running)
    sums = []
    for _ in range(3):  # nobody holds the lease, the process trains on
        clock.advance(20)
        sums.append(totals(store.usage.of_run(uid))["instance_seconds"])
    assert sums == [20, 40, 60]
    after = Writer(open_another(), uid, "takes over")
    after.commit(running, resources=None)
    after.commit(dataclasses.replace(running, state="failed", finished_at=START + 30))
    after.commit(worker(0, attempt=1, state="running", started_at=START + 60))
    clock.advance(10)
    assert spans(store, uid) == [(0, 0, 30.0, False), (0, 1, 10.0, True)]


def ends_with(**after: Any) -> Callable[[InstanceEntry], tuple[InstanceEntry, ...]]:
    return lambda entry: (dataclasses.replace(entry, **with_attempt_id(after)),)


@pytest.mark.parametrize(
    ("then", "seconds"),
    [
        pytest.param(
            ends_with(attempt=1, started_at=None, state="pending"), 40.0, id="next-attempt"
        ),
        pytest.param(ends_with(epoch=1, started_at=None, state="pending"), 40.0, id="next-epoch"),
        pytest.param(lambda entry: (), 40.0, id="scaled-away"),
        pytest.param(ends_with(state="failed", last_transition_at=START + 25), 25.0, id="vanished"),
        pytest.param(ends_with(state="failed", finished_at=START - 5), 0.0, id="clocks-disagree"),
    ],
)
def test_an_attempt_ends_even_if_nobody_saw_it_end(
    store: Store,
    uid: str,
    clock: Clock,
    then: Callable[[InstanceEntry], tuple[InstanceEntry, ...]],
    seconds: float,
):
    running = worker(0, state="running", started_at=START)
    writer = Writer(store, uid, "a")
    writer.commit(running)
    clock.advance(40)
    writer.commit(*then(running))
    clock.advance(1000)
    assert spans(store, uid) == [(0, 0, seconds, False)]


def test_the_end_of_the_job_closes_what_is_open(store: Store, uid: str, clock: Clock):
    Writer(store, uid, "a").commit(worker(0, state="unknown", started_at=START))
    clock.advance(30)
    end_run(store, uid, at=clock.now)
    clock.advance(1000)
    assert spans(store, uid) == [(0, 0, 30.0, False)]


def test_resources_once_recorded_are_not_emptied(store: Store, uid: str):
    writer = Writer(store, uid, "a")
    running = worker(0, state="running", started_at=START)
    writer.commit(running)
    writer.commit(worker(0, state="running", started_at=START, ready=True), resources=None)
    assert store.usage.of_run(uid)[0].resources == RESOURCES["worker"]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        pytest.param({"cpu": "500m"}, {"cpu_seconds": 5}, id="millicores"),
        pytest.param({"memory": "2Ki"}, {"memory_byte_seconds": 20480}, id="bytes"),
        pytest.param({"nvidia.com/gpu": "2"}, {"gpu_seconds": 20}, id="nvidia"),
        pytest.param({"amd.com/gpu": "1"}, {"gpu_seconds": 10}, id="amd"),
        pytest.param({"nvidia.com/mig-1g.5gb": "1"}, {"gpu_seconds": 10}, id="a-slice"),
        pytest.param({"ephemeral-storage": "1Gi"}, {}, id="anything-else"),
    ],
)
def test_totals_are_resources_times_seconds(
    resources: Mapping[str, str], expected: Mapping[str, float]
):
    sums = totals([ResourceUsage(resources=resources, seconds=10.0)])
    nothing = dict.fromkeys(("cpu_seconds", "memory_byte_seconds", "gpu_seconds"), 0.0)
    assert sums == {**nothing, "instance_seconds": 10.0, **expected}


def test_a_ledger_without_starts_has_no_usage(store: Store):
    assert store.usage.of_run(add_run(store, "idle", ledger=a_ledger(worker(0))).uid) == []


def test_attempts_of_a_span_of_time_are_told_with_whose_they_are(
    store: Store, uid: str, clock: Clock
):
    writer = Writer(store, uid, "a")
    first = worker(0, state="succeeded", started_at=START + 1, finished_at=START + 4)
    writer.commit(first, worker(1, state="running", started_at=START + 8))
    clock.advance(20)

    def told(start: float, end: float, **keys: Any) -> list[tuple[float, float]]:
        found = store.usage.between(START + start, START + end, **keys)
        assert all((each.run, each.resources) == (uid, RESOURCES["worker"]) for each in found)
        return sorted((each.started_at - START, each.finished_at - START) for each in found)

    assert told(0, 100) == [(1, 4), (8, 20)]
    assert told(2, 3) == [(1, 4)]
    assert told(4, 8) == []
    assert told(19, 30) == [(8, 20)]
    key = store.run(uid).key
    assert told(0, 100, sources=[key.source], dag_ids=[key.dag_id]) == [(1, 4), (8, 20)]
    assert told(0, 100, sources=["elsewhere"]) == told(0, 100, dag_ids=[]) == []


def test_what_stays_for_a_look_inside_counts_until_it_goes(store: Store, uid: str, clock: Clock):
    writer = Writer(store, uid, "a")
    running = worker(0, state="running", started_at=START + 1)
    writer.commit(running)
    failed = dataclasses.replace(running, state="failed", finished_at=START + 4)
    kept = KeptInstance(
        state="stays", key=failed.key, attempt_id=failed.attempt_id, until=START + 50
    )
    job = dataclasses.replace(writer.ledger.job, state="Failed", kept=kept)
    entries = {failed.key: failed}
    writer.commit_ledger(dataclasses.replace(writer.ledger, job=job, instances=entries))
    clock.advance(10)
    assert spans(store, uid) == [(0, 0, 9.0, True)]
    (span,) = store.usage.between(START, START + 100)
    assert span.finished_at == START + 10
    ended = dataclasses.replace(kept, state="ended", until=START + 20)
    over = dataclasses.replace(job, kept=ended)
    writer.commit_ledger(dataclasses.replace(writer.ledger, job=over))
    clock.advance(90)
    assert spans(store, uid) == [(0, 0, 19.0, False)]
    (span,) = store.usage.between(START, START + 100)
    assert span.finished_at == START + 20


def test_what_has_gone_by_itself_counts_no_longer_when_its_run_is_opened_anew(
    store: Store, uid: str, clock: Clock
):
    writer = Writer(store, uid, "a")
    running = worker(0, state="running", started_at=START + 1)
    writer.commit(running)
    failed = dataclasses.replace(running, state="failed", finished_at=START + 4)
    kept = KeptInstance(
        state="stays", key=failed.key, attempt_id=failed.attempt_id, until=START + 20
    )
    job = dataclasses.replace(writer.ledger.job, state="Failed", kept=kept)
    entries = {failed.key: failed}
    writer.commit_ledger(dataclasses.replace(writer.ledger, job=job, instances=entries))
    clock.advance(1000)
    writer.commit_ledger(
        dataclasses.replace(writer.ledger, job=dataclasses.replace(job, kept=None))
    )
    assert spans(store, uid) == [(0, 0, 19.0, False)]

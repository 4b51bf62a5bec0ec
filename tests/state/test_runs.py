"""Creating, naming, listing and removing runs."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import delete, func, select

from airflow_training.control.node_faults import ExclusionRules, NodeFault
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.state.models import Base, RunRow
from airflow_training.state.nodes import Cluster
from airflow_training.state.records import Measurement
from airflow_training.state.store import LogPosition, RunRecord, Store
from tests.state.samples import (
    START,
    Clock,
    a_job,
    a_key,
    a_ledger,
    add_run,
    an_event,
    end_run,
    take,
    worker,
)


def create(store: Store, job: ResolvedJob, run_id: str = "first", **key: Any) -> RunRecord:
    return store.create_run(
        a_key(run_id, **key), job, a_ledger(worker(0)), controller="here", queue=True
    )


def test_a_new_run_is_recorded(store: Store):
    job = a_job(replicas=1, runtime="memory", variables={"params": {"lr": 0.1}})
    record = create(store, job, dag_id="nightly", group_id="train", map_index=3)
    assert record == store.run(record.uid)
    assert record.key == a_key("first", dag_id="nightly", group_id="train", map_index=3)
    assert (record.job, record.runtime, record.controller) == ("digits", "memory", "here")
    assert (record.state, record.condition, record.submitted_at) == ("Pending", "Received", START)
    assert (record.queued, record.tombstone, record.finished_at) == (True, False, None)
    assert store.job(record.uid) == job
    assert store.ledger(record.uid) == a_ledger(worker(0))
    assert store.run("unknown") is None


@pytest.mark.parametrize(
    ("change", "conflict"),
    [
        pytest.param({}, False, id="nothing"),
        pytest.param({"variables": {"params": {}, "logical_date": "later"}}, False, id="the-date"),
        pytest.param({"base_dir": "/elsewhere"}, False, id="the-folder"),
        pytest.param({"document": {"kind": "TrainingJob", "spec": {}}}, True, id="the-document"),
        pytest.param({"variables": {"params": {"lr": 1}}}, True, id="a-parameter"),
    ],
)
def test_the_same_run_id_is_the_same_run_only_with_the_same_document(
    store: Store, change: dict[str, Any], conflict: bool
):
    job = a_job(variables={"params": {}, "logical_date": "now"})
    first = create(store, job)
    again = dataclasses.replace(job, **change)
    if not conflict:
        assert create(store, again) == first
        assert store.job(first.uid) == job
        return
    with pytest.raises(InputError) as error:
        create(store, again)
    [problem] = error.value.problems
    assert (problem.code, problem.field, problem.value) == ("conflict", "run_id", "first")
    assert "another run id" in problem.hint


def test_jobs_made_without_a_document_are_compared_as_a_whole(store: Store):
    job = a_job(document={})
    assert create(store, job) == create(store, job)
    with pytest.raises(InputError):
        create(store, dataclasses.replace(job, namespace="other"))


def test_many_who_create_the_same_run_get_the_same_run(open_another: Callable[[], Store]):
    stores = [open_another() for _ in range(6)]
    together = threading.Barrier(len(stores))
    records: list[RunRecord] = []

    def make(store: Store) -> None:
        together.wait()
        records.append(add_run(store))

    threads = [threading.Thread(target=make, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(records) == len(stores)
    assert len({record.uid for record in records}) == 1


def test_a_run_id_that_is_too_long_is_refused(store: Store):
    with pytest.raises(InputError, match="run_id: is longer than 250 characters"):
        create(store, a_job(), "x" * 251)


def test_a_run_is_found_by_uid_prefix_and_run_id(store: Store):
    record = create(store, a_job(), "manual__2026")
    create(store, a_job(), "another")
    for text in (record.uid, record.uid[:8], "manual__2026"):
        assert store.find_run(text) == record


def test_an_ambiguous_name_lists_what_it_may_mean(store: Store):
    twins = [create(store, a_job(), "nightly", dag_id=dag) for dag in ("a", "b")]
    with pytest.raises(InputError) as error:
        store.find_run("nightly")
    [problem] = error.value.problems
    assert (problem.code, problem.value) == ("bad_reference", "nightly")
    assert sorted(problem.allowed) == sorted(each.uid for each in twins)
    assert "digits, a/nightly, Pending" in problem.hint


def test_an_ambiguous_prefix_lists_what_it_may_mean(store: Store):
    uids = [create(store, a_job(), f"run-{number}").uid for number in range(20)]
    first = max("0123456789abcdef", key=lambda digit: sum(uid[0] == digit for uid in uids))
    expected = [uid for uid in uids if uid[0] == first]
    assert len(expected) > 1
    with pytest.raises(InputError) as error:
        store.find_run(first)
    assert sorted(error.value.problems[0].allowed) == sorted(expected)


@pytest.mark.parametrize("text", ["nothing", "", "%", "_", "\0"])
def test_a_name_that_nothing_has_lists_the_newest_runs(store: Store, text: str):
    record = create(store, a_job())
    with pytest.raises(InputError) as error:
        store.find_run(text)
    assert error.value.problems[0].allowed == [record.key.run_id]


def test_runs_are_listed_newest_first(store: Store):
    for number in range(4):
        ledger = a_ledger(submitted_at=START + number)
        add_run(store, f"run-{number}", ledger=ledger)
    end_run(store, a_key("run-2").uid, at=START)
    assert [each.key.run_id for each in store.runs()] == ["run-3", "run-2", "run-1", "run-0"]
    assert [each.key.run_id for each in store.runs(limit=2)] == ["run-3", "run-2"]
    assert [each.key.run_id for each in store.runs(states=["Succeeded", "Failed"])] == ["run-2"]
    assert len(store.runs(controller="here")) == 4
    assert store.runs(controller="elsewhere") == []
    assert len(store.runs(job="digits")) == 4
    assert store.runs(job="other") == []


def rows(store: Store) -> dict[str, int]:
    """Count what belongs to runs; what accounts were charged for them stays (`tests/accounts`)."""
    with store._db.read() as connection:
        return {
            table.name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for table in Base.metadata.sorted_tables
            if table.foreign_keys or table.name in ("training_runs", "training_meta")
        }


def fill(store: Store, run_id: str) -> str:
    """Make a run with rows in every table."""
    uid = add_run(store, run_id).uid
    store.add_request(uid, "pause")
    store.addresses.fix(uid, {"worker": [{"host": "a"}]})
    store.progress.save(
        uid, {InstanceKey("worker", 0): ProgressReport(step=1, samples=8, metrics={"loss": 1.0})}
    )
    store.measurements.save(
        uid, Measurement(plan="p", subject="s", strategy={}, step_seconds=1.0, steps=3)
    )
    read = LogPosition(epoch=0, job_attempt=0, attempt=0)
    store.log_values.save(
        uid, InstanceKey("worker", 0), before=None, after=read, values=(), progress=None
    )
    store.subtasks.save(uid, {"": {}})
    store.environments.save(uid, {InstanceKey("worker", 0): ["{}"]})
    fault = NodeFault(
        run=uid, key=InstanceKey("worker", 0), epoch=0, attempt=0, node="n1", at=START, blame="node", why="NodeLost"
    )  # fmt: skip
    never = ExclusionRules(failures=0, window_seconds=1.0, seconds=1.0)
    store.nodes.record(uid, Cluster(runtime="kubernetes"), [fault], rules=never)
    old, lease = store.ledger(uid), take(store, uid)
    new = a_ledger(worker(0, state="running", started_at=START))
    store.commit(uid, lease=lease, old=old, new=new, events=[an_event()])
    store.release(lease)
    return uid


def test_prune_removes_old_finished_runs_and_all_that_belongs_to_them(store: Store, clock: Clock):
    nothing = rows(store)
    old, recent, running, held = (fill(store, name) for name in ("old", "recent", "on", "held"))
    assert all(
        count > nothing[table] for table, count in rows(store).items() if "meta" not in table
    )
    for uid, at in ((old, START), (recent, START + 900), (held, START)):
        end_run(store, uid, at=at)
    clock.advance(1000)
    take(store, held)
    assert store.prune(older_than_seconds=500) == 1
    assert {each.uid for each in store.runs()} == {recent, running, held}
    clock.advance(1000)
    assert store.prune(older_than_seconds=0) == 2
    assert [each.uid for each in store.runs()] == [running]
    with store._db.write() as connection:
        connection.execute(delete(RunRow))
    assert rows(store) == nothing


def test_prune_keeps_what_may_still_be_alive(store: Store, clock: Clock):
    uid = add_run(store).uid
    end_run(store, uid, state="Failed", at=START, drained=False)
    clock.advance(1000)
    assert store.prune(older_than_seconds=0) == 0
    store.tombstone(uid, reason="removed")
    assert store.prune(older_than_seconds=0) == 1


def test_prune_removes_more_runs_than_fit_in_one_transaction(store: Store, clock: Clock):
    for number in range(120):
        ledger = a_ledger(state="Stopped", finished_at=START, drained=True)
        add_run(store, f"run-{number}", ledger=ledger)
    clock.advance(10)
    assert store.prune(older_than_seconds=5) == 120

"""The loop's transaction: what changed is written, all of it or nothing."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import (
    Elapsed,
    InstanceEntry,
    JobEntry,
    Ledger,
    PendingPhase,
    RoleEntry,
)
from airflow_training.control.reports import ProgressReport, ReportedValue
from airflow_training.control.run_output import RunOutput
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import InputError, LeaseLost
from airflow_training.state.store import Store
from tests.examples import examples
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
from tests.state.test_codec import build


def commit(store: Store, uid: str, new: Ledger, *messages: str, **options: Any) -> None:
    lease = take(store, uid)
    events = [an_event(message) for message in messages]
    store.commit(uid, lease=lease, old=store.ledger(uid), new=new, events=events, **options)


def test_a_ledger_comes_back_as_it_was_stored(store: Store, open_another: Callable[[], Store]):
    new = a_ledger(
        worker(1, state="running", started_at=START, address="127.0.0.1:1", address_live=True),
        worker(0, state="failed", exit_code=137, message="\0 odd \ud800 text"),
        roles=[
            RoleEntry(role="worker", waits={"m/Running": Elapsed(at=1.5, runs=True)}),
            RoleEntry(role="a"),
        ],
        state="Running",
    )
    uid = add_run(store, ledger=a_ledger(worker(0), worker(7))).uid
    commit(store, uid, new)
    assert open_another().ledger(uid) == new == store.ledger(uid)
    assert list(open_another().ledger(uid).roles) == ["worker", "a"]


def in_bounds(job: JobEntry) -> JobEntry:
    """Return it with numbers of a kept instance that a database has room for, as those of all instances."""
    if job.kept is None:
        return job
    attempt = AttemptId(*(number % 1000 for number in dataclasses.astuple(job.kept.attempt_id)))
    kept = dataclasses.replace(
        job.kept, key=InstanceKey("a", job.kept.index % 1000), attempt_id=attempt
    )
    return dataclasses.replace(job, kept=kept)


ledgers = st.builds(
    lambda job, roles, instances: Ledger(
        job=job,
        roles={each.role: each for each in roles},
        instances={InstanceKey(each.role, each.index): each for each in instances},
    ),
    build(JobEntry).map(in_bounds),
    st.lists(
        st.builds(dataclasses.replace, build(RoleEntry), role=st.sampled_from("abc")),
        max_size=3,
    ),
    st.lists(
        st.builds(
            dataclasses.replace,
            build(InstanceEntry),
            key=st.builds(InstanceKey, st.just("worker"), st.integers(0, 4)),
            attempt_id=st.builds(AttemptId, *[st.integers(0, 2)] * 3),
        ),
        max_size=5,
    ),
)


@given(steps=st.lists(ledgers, min_size=1, max_size=4))
@settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[*HealthCheck],
)
def test_after_any_row_of_commits_the_newest_ledger_is_stored(
    tmp_path_factory: pytest.TempPathFactory, sqlite_template: Any, steps: list[Ledger]
):
    path = tmp_path_factory.mktemp("store") / "store.db"
    path.write_bytes(sqlite_template.read_bytes())
    store, other = Store(f"sqlite:///{path}"), Store(f"sqlite:///{path}")
    old = a_ledger(worker(0))
    uid = store.create_run(a_key(), a_job(), old, controller="here", queue=False).uid
    lease = take(store, uid)
    for new in steps:
        store.commit(uid, lease=lease, old=old, new=new, events=[])
        assert other.ledger(uid) == new
        old = new
    store.close()
    other.close()


def test_only_changed_rows_are_written(store: Store):
    entries = [worker(index) for index in range(1000)]
    uid = add_run(store, ledger=a_ledger(*entries)).uid
    old, lease = store.ledger(uid), take(store, uid)
    instances = {**old.instances, InstanceKey("worker", 500): worker(500, state="running")}
    written: list[Any] = []

    def note(_connection: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if statement.startswith(("INSERT", "UPDATE training_l", "DELETE")):
            written.append((statement.split()[2], parameters))

    event.listen(store._db.engine, "before_cursor_execute", note)
    store.commit(
        uid, lease=lease, old=old, new=dataclasses.replace(old, instances=instances), events=[]
    )
    assert [table for table, _ in written if table == "training_ledger"] == ["training_ledger"]
    [[_, parameters]] = [each for each in written if each[0] == "training_ledger"]
    assert "500" in str(parameters)
    assert len(parameters) in {1, 5}  # one row, whichever way the driver takes it


def test_live_addresses_follow_the_ledger(store: Store):
    uid = add_run(store).uid
    store.addresses.fix(uid, {"worker": [{"host": "a", "ports": {"p": 1}}, {"host": "b"}]})
    up = worker(0, address="a:1", address_live=True)
    commit(store, uid, a_ledger(up, worker(1)))
    assert store.addresses.live(uid) == {"worker": {0: "a:1"}}
    commit(store, uid, a_ledger(up, worker(1, address="b:1", address_live=True)))
    commit(
        store,
        uid,
        a_ledger(dataclasses.replace(up, attempt_id=AttemptId(attempt=1), phase=PendingPhase())),
    )
    assert store.addresses.live(uid) == {}
    assert store.read([uid])[uid].addresses == {
        "worker": [{"host": "a", "ports": {"p": 1}}, {"host": "b"}]
    }


def test_the_record_follows_the_job(store: Store, clock: Clock):
    uid = add_run(store).uid
    end_run(store, uid, state="Failed", at=START + 5, condition="Failed")
    record = store.run(uid)
    assert record is not None
    assert (record.state, record.condition, record.finished_at) == ("Failed", "Failed", START + 5)
    commit(store, uid, a_ledger(worker(0), state="Running", epoch=1))
    record = store.run(uid)
    assert record is not None
    assert (record.state, record.finished_at) == ("Running", None)


def test_a_commit_that_fails_half_way_leaves_nothing(store: Store):
    uid = add_run(store).uid
    old = store.ledger(uid)
    new = a_ledger(worker(0, state="running", started_at=START))
    broken = an_event(data={"what": object()})  # fails after ledger and usage were written
    with pytest.raises(TypeError):
        store.commit(uid, lease=take(store, uid), old=old, new=new, events=[an_event(), broken])
    assert store.ledger(uid) == old
    assert store.events(uid) == []
    assert store.usage.of_run(uid) == []


def test_a_commit_to_a_removed_run_is_a_lost_lease(store: Store, clock: Clock):
    uid = add_run(store).uid
    end_run(store, uid, at=START)
    lease, old = take(store, uid), store.ledger(uid)
    clock.advance(1000)
    assert store.prune(older_than_seconds=10) == 1
    with pytest.raises(LeaseLost):
        store.commit(uid, lease=lease, old=old, new=a_ledger(), events=[an_event()])


def test_a_read_sees_every_commit_of_others(store: Store, open_another: Callable[[], Store]):
    uid = add_run(store).uid
    reader = open_another()
    for restarts in range(5):
        new = a_ledger(worker(0, restarts=restarts))
        commit(store, uid, new, f"number {restarts}")
        state = reader.read([uid, "unknown"])
        assert list(state) == [uid]
        assert state[uid].ledger == new
        assert state[uid].last_seq == restarts + 1
        lease = state[uid].lease
        assert lease is not None
        assert lease.generation == restarts + 1


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda store, uid: commit(store, uid, a_ledger(worker(0))), id="ledger"),
        pytest.param(lambda store, uid: store.add_events(uid, [an_event()]), id="event"),
        pytest.param(lambda store, uid: store.add_request(uid, "pause"), id="request"),
        pytest.param(lambda store, uid: store.addresses.fix(uid, {"a": []}), id="addresses"),
        pytest.param(lambda store, uid: store.tombstone(uid, reason="x"), id="tombstone"),
        pytest.param(take, id="lease"),
        pytest.param(
            lambda store, uid: store.queue.try_start(uid, max_running_jobs=0, runtime="local"),
            id="start",
        ),
    ],
)
def test_every_change_gives_a_run_another_version(
    store: Store, change: Callable[[Store, str], object]
):
    uids = [add_run(store, name).uid for name in ("changed", "left-alone")]
    before = store.versions(uids)
    assert store.versions(uids) == before
    change(store, uids[0])
    after = store.versions([*uids, "unknown"])
    assert [after[uid] == before[uid] for uid in uids] == [False, True]
    assert "unknown" not in after


def test_a_lease_that_runs_out_gives_a_run_another_version(store: Store, clock: Clock):
    uid = add_run(store).uid
    take(store, uid)
    before = store.versions([uid])
    clock.advance(20)
    assert store.versions([uid]) != before


def test_reading_many_runs_takes_a_constant_number_of_queries(
    store: Store, open_another: Callable[[], Store]
):
    uids = [add_run(store, f"run-{number}").uid for number in range(30)]
    reader = open_another()
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    reader.read(uids[:1])  # settles what is done once per connection
    event.listen(reader._db.engine, "before_cursor_execute", note)
    assert len(reader.read(uids)) == 30
    first, count = count, 0
    assert first <= 8
    reader.read(uids)
    assert count <= 3  # nothing has changed: one query, and the transaction around it


def test_a_run_made_again_after_prune_is_not_taken_for_the_old_one(
    store: Store, open_another: Callable[[], Store], clock: Clock
):
    uid = add_run(store, ledger=a_ledger(worker(0, message="old"))).uid
    reader = open_another()
    end_run(store, uid, at=START)
    reader.ledger(uid)
    clock.advance(1000)
    store.prune(older_than_seconds=10)
    fresh = a_ledger(worker(0, message="new"), submitted_at=clock.now)
    add_run(store, ledger=fresh)
    end_run(store, uid, at=clock.now)
    assert reader.ledger(uid).instances == fresh.instances


def test_a_replaced_job_starts_anew_and_keeps_its_history(store: Store):
    uid = add_run(store).uid
    store.addresses.fix(uid, {"worker": [{"host": "a"}]})
    store.set_output(uid, RunOutput(uri="file:///model"))
    commit(store, uid, a_ledger(worker(0, started_at=START, state="running")), "before")
    lease = take(store, uid)
    planned = a_ledger(worker(0, job_attempt=1), job_attempt=1)
    store.replace_job(uid, a_job(replicas=1), planned, generation=lease.generation)
    state = store.read([uid])[uid]
    assert state.job == a_job(replicas=1)
    assert state.ledger == planned
    assert state.addresses == {}
    assert store.output(uid) is None
    assert [each.event.message for each in store.events(uid)] == ["before"]
    assert [each.finished_at is None for each in store.usage.of_run(uid)] == [False]


def test_progress_keeps_the_newest_line_and_the_series_of_metrics(store: Store):
    uid = add_run(store).uid
    for step, loss in ((1, 0.5), (2, math.nan), (2, math.nan)):  # the last line was sent twice
        metrics = {"loss": loss, "accuracy": 0.25}
        line = ProgressReport(step=step, time=START + step, metrics=metrics)
        store.progress.save(uid, {InstanceKey("worker", 0): line})
    store.progress.save(uid, {InstanceKey("worker", 1): ProgressReport(step=9)})
    progress = store.progress.newest(uid)
    assert progress[InstanceKey("worker", 0)].step == 2
    assert progress[InstanceKey("worker", 1)] == ProgressReport(step=9)
    first, second = store.metrics.series(uid, name="loss")
    assert (first.step, first.at, first.value) == (1, START + 1, 0.5)
    assert (second.step, second.at) == (2, START + 2)
    assert math.isnan(second.value)
    assert len(store.metrics.series(uid)) == 4


def test_progress_appends_the_points_of_all_lines(store: Store):
    uid = add_run(store).uid
    loss = [ReportedValue(i, START + i, 9.0 if i == 3 else 0.5) for i in range(5)]
    twice = {"loss": [*loss, loss[-1]], "grad": [ReportedValue(None, START, math.nan)]}
    metrics = {"loss": 0.5, "accuracy": 0.25}
    line = ProgressReport(step=4, time=START + 4.5, metrics=metrics, points=twice)
    for _ in range(2):  # told again: nobody had heard that it was taken
        store.progress.save(uid, {InstanceKey("worker", 0): line})
    assert store.progress.newest(uid)[InstanceKey("worker", 0)] == replace(line, points={})
    assert [
        (each.step, each.at, each.value) for each in store.metrics.series(uid, name="loss")
    ] == loss
    (grad,) = store.metrics.series(uid, name="grad")
    assert math.isnan(grad.value)
    (accuracy,) = store.metrics.series(uid, name="accuracy")
    assert (accuracy.at, accuracy.value) == (START + 4.5, 0.25)


def test_output_is_kept(store: Store):
    uid = add_run(store).uid
    assert store.output(uid) is None
    output = RunOutput(uri="s3://models/digits", bytes=3, digest="sha256:1")
    store.set_output(uid, output)
    assert store.output(uid) == output


@pytest.mark.parametrize(
    "write",
    [
        lambda store: store.add_request("gone", "stop"),
        lambda store: store.add_events("gone", [an_event()]),
        lambda store: store.addresses.fix("gone", {"worker": [{"host": "a"}]}),
        lambda store: store.progress.save(
            "gone", {InstanceKey("worker", 0): ProgressReport(step=1)}
        ),
        lambda store: store.set_output("gone", RunOutput(uri="s3://m")),
        lambda store: store.tombstone("gone", reason="x"),
        lambda store: store.requeue("gone"),
        lambda store: store.queue.try_start("gone", max_running_jobs=0, runtime="local"),
        lambda store: store.job("gone"),
        lambda store: store.ledger("gone"),
    ],
)
def test_a_run_that_does_not_exist_is_named(store: Store, write: Callable[[Store], object]):
    with pytest.raises(InputError, match="no run is called 'gone'"):
        write(store)


COMMIT_FOR_EVER = """
import dataclasses, sys
from airflow_training.state.store import Store
from tests.state.samples import an_event, take, worker
store, uid = Store(sys.argv[1]), sys.argv[2]
lease = take(store, uid)
old = store.ledger(uid)
for number in range(1, 100_000):
    new = dataclasses.replace(
        old, instances={("worker", 0): worker(0, restarts=number, started_at=1.0, attempt=number)}
    )
    store.commit(uid, lease=lease, old=old, new=new, events=[an_event(str(number))])
    old = new
    print(number, flush=True)
"""


@pytest.mark.e2e
@pytest.mark.parametrize("after", [1, 7, 40])
def test_a_killed_holder_loses_no_commit_and_leaves_none_half_done(url: str, after: int):
    store = Store(url)
    uid = add_run(store, ledger=a_ledger(worker(0))).uid
    process = subprocess.Popen(
        [sys.executable, "-c", COMMIT_FOR_EVER, url, uid],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    while int(process.stdout.readline()) < after:
        pass
    process.kill()
    told = [after, *map(int, process.stdout.read().split())][-1]
    process.wait()
    process.stdout.close()
    store.acquire(uid, owner="next", dead_owners=["me"])  # waits for what is on its way
    stored = store.ledger(uid).instances[InstanceKey("worker", 0)].restarts
    assert stored in {told, told + 1}  # it may have died between the commit and telling of it
    assert [each.event.message for each in store.events(uid)] == [
        str(number) for number in range(1, stored + 1)
    ]
    attempts = [(each.attempt, each.finished_at is None) for each in store.usage.of_run(uid)]
    assert sorted(attempts) == [(number, number == stored) for number in range(1, stored + 1)]
    store.close()

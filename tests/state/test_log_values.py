"""Values of logs are kept once, with how far the log was read."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
from sqlalchemy import select, update

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.models import LogPositionRow
from airflow_training.state.store import LogPosition, LogValue, Store
from tests.state.samples import START, add_run

KEY = InstanceKey("worker", 0)
FIRST = LogPosition(epoch=0, job_attempt=0, attempt=0, done=100, offset=80, last_at=START + 1)


def value(step: int, **fields) -> LogValue:
    given = {"name": "loss", "at": START + step, "step": step, "value": 1 / (step + 1), **fields}
    return LogValue(**given)


def save(store: Store, uid: str, before, after, *values: LogValue, progress=None) -> bool:
    return store.log_values.save(
        uid, KEY, before=before, after=after, values=values, progress=progress
    )


def test_a_position_moves_once(store: Store):
    uid = add_run(store).uid
    assert save(store, uid, None, FIRST, value(1))
    assert store.log_values.positions(uid) == {KEY: FIRST}
    second = dataclasses.replace(FIRST, done=200, token="2026-01-01T00:00:00Z|7")
    assert not save(store, uid, None, second, value(2)), "somebody else was first"
    assert save(store, uid, FIRST, second, value(2), value(3, value=math.nan))
    assert not save(store, uid, FIRST, second, value(4))
    assert store.log_values.positions(uid) == {KEY: second}
    kept = store.metrics.series(uid)
    assert [each.step for each in kept] == [1, 2, 3]
    assert math.isnan(kept[-1].value)


@pytest.mark.parametrize("later", ["held", "carry", "ended", "token"])
def test_a_position_of_an_older_version_moves_on(store: Store, later: str):
    """Which did not know a field yet."""
    uid = add_run(store).uid
    save(store, uid, None, FIRST)
    with store._db.engine.begin() as connection:
        fields = json.loads(connection.execute(select(LogPositionRow.body)).scalar_one())
        del fields[later]
        connection.execute(update(LogPositionRow).values(body=json.dumps(fields)))
    second = dataclasses.replace(FIRST, done=200)
    assert save(store, uid, store.log_values.positions(uid)[KEY], second, value(2))
    assert not save(store, uid, FIRST, second, value(3)), "it is not there any more"
    assert [each.step for each in store.metrics.series(uid)] == [2]


def test_what_the_script_reports_wins(store: Store):
    uid = add_run(store).uid
    save(store, uid, None, FIRST, value(1), progress=ProgressReport(step=1, time=START))
    assert store.progress.newest(uid) == {KEY: ProgressReport(step=1, time=START)}
    store.progress.save(uid, {KEY: ProgressReport(step=9, metrics={"loss": 0.5}, time=START + 9)})
    later = dataclasses.replace(FIRST, done=200)
    save(store, uid, FIRST, later, value(2), value(2, name="lr"), progress=ProgressReport(step=2))
    assert store.progress.newest(uid)[KEY].step == 9
    assert [(each.name, each.step) for each in store.metrics.series(uid)] == [
        ("loss", 1), ("lr", 2), ("loss", 9),
    ]  # fmt: skip


def test_ranks_of_one_log_are_series_of_their_own_and_the_lowest_speaks(store: Store):
    uid = add_run(store).uid
    first = [value(1, rank=rank, value=float(rank)) for rank in (3, 1)]
    save(store, uid, None, FIRST, *first, value(1, name="lr", value=0.1))
    later = dataclasses.replace(FIRST, done=200)
    save(store, uid, FIRST, later, value(2, rank=3, value=9.0))
    kept = store.metrics.series(uid, name="loss")
    assert [(each.rank, each.step, each.value) for each in kept] == [
        (1, 1, 1.0), (3, 1, 3.0), (3, 2, 9.0),
    ]  # fmt: skip
    assert [each.rank for each in store.metrics.series(uid, name="lr")] == [None]
    assert store.metrics.newest(uid) == {KEY: {"loss": 1.0, "lr": 0.1}}


@pytest.mark.parametrize("values", [0, 3])
def test_positions_of_other_instances_stay(store: Store, values: int):
    uid = add_run(store).uid
    save(store, uid, None, FIRST, *(value(step) for step in range(values)))
    other = dataclasses.replace(FIRST, attempt=2)
    assert store.log_values.save(
        uid, InstanceKey("worker", 1), before=None, after=other, values=(), progress=None
    )
    assert store.log_values.positions(uid) == {KEY: FIRST, ("worker", 1): other}

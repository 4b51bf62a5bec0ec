"""The loss of many runs in one query, as short lines."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import event

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.store import open_store
from tests.web.conftest import a_run


def report(uid: str, *losses: float, role: str = "worker", name: str = "loss") -> None:
    for number, loss in enumerate(losses):
        line = ProgressReport(step=number, time=100.0 + number, metrics={name: loss})
        open_store().progress.save(uid, {InstanceKey(role, 0): line})


def test_each_run_has_a_short_line_of_its_loss(airflow_home: Path):
    short, long, other, silent = (a_run(each).uid for each in ("a", "b", "c", "d"))
    report(short, 3.0, 2.0, 1.0)
    report(long, *(float(each) for each in range(200)))
    report(other, 5.0, 4.0, name="train_loss")
    report(other, 0.5, name="accuracy")
    found = open_store().metrics.losses([short, long, other, silent], points=5)
    assert found[short] == [3.0, 2.0, 2.0, 1.0, 1.0]
    assert found[long] == [0.0, 50.0, 100.0, 150.0, 199.0]
    assert found[other] == [5.0, 4.0, 4.0, 4.0, 4.0]
    assert silent not in found
    assert open_store().metrics.losses([]) == {}


def test_it_is_one_query_however_many_runs(airflow_home: Path):
    store = open_store()
    uids = [a_run(f"r{number}").uid for number in range(20)]
    for uid in uids:
        report(uid, 2.0, 1.0)
    asked: list[str] = []
    engine = store._db.engine
    event.listen(engine, "before_cursor_execute", lambda *given: asked.append(given[2]))
    assert len(store.metrics.losses(uids)) == len(uids)
    assert sum("training_metrics" in each for each in asked) == 1

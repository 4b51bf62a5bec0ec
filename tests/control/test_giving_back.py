"""A job that needs all of its instances gives places back that it cannot use, and tries again."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.giving_back import PATIENCE_SECONDS
from airflow_training.control.model import Create, Delete, ProgressReport
from tests.builders import Bench, job, role


def half_refused(**fields: Any) -> Bench:
    """Return a job of which worker-1 is refused again and again while worker-0 runs."""
    bench = Bench(job(role(replicas=2), **{"scope": "Job", **fields}))
    bench.step()
    bench.lose("worker", 1)
    bench.run_pending()
    bench.decide()
    return bench


def later(bench: Bench, seconds: float) -> None:
    bench.decide(seconds=seconds)


def test_places_are_given_back_when_nothing_moves():
    bench = half_refused()
    later(bench, PATIENCE_SECONDS - 1)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)
    assert bench.last.wake_at is not None
    later(bench, 1)
    (told,) = bench.said(reasons.PLACES_GIVEN_BACK)
    assert told.message.startswith("1 instance refused for 120 s while 1 held their places")
    assert bench.actions(Delete) == [("worker", 0)]
    assert not bench.charged()
    assert [bench.of("worker", i).restarts for i in range(2)] == [0, 0]
    bench.act()
    restart_at = bench.ledger.job.restart_at
    assert restart_at is not None
    assert bench.now + 30 <= restart_at <= bench.now + 120
    bench.step(seconds=1)
    assert not bench.actions(Create)
    bench.step(seconds=120)
    assert bench.actions(Create) == [("worker", 0), ("worker", 1)]
    bench.settle()
    assert bench.state == "Running"
    assert bench.ledger.job.crowded_since is None


def test_two_jobs_do_not_come_back_at_the_same_moment():
    waits = set()
    for name in ("one", "two", "three"):
        bench = half_refused(name=name)
        later(bench, PATIENCE_SECONDS)
        waits.add(bench.ledger.job.restart_at)
    assert len(waits) == 3


def test_giving_back_does_not_put_off_the_limit_of_waiting():
    bench = half_refused(schedule_timeout_seconds=200)
    later(bench, PATIENCE_SECONDS)
    bench.act()
    for _ in range(30):
        bench.step(seconds=10)
        for uid in [uid for uid, each in bench.objects.items() if each.index == 1]:
            del bench.objects[uid]
    assert (bench.state, bench.ledger.job.reason) == ("Failed", reasons.SCHEDULE_TIMEOUT)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"scope": "Instance"}, id="each-is-of-use-alone"),
        pytest.param({"elastic": True}, id="goes-on-with-fewer"),
        pytest.param({"gang": "volcano", "startup": "createAllHold"}, id="a-gang-sees-to-it"),
    ],
)
def test_other_jobs_keep_their_places(fields):
    bench = half_refused(**fields)
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_a_job_that_trains_keeps_its_places():
    bench = half_refused()
    bench.set("worker", 0, progress=ProgressReport(step=7))
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)


def test_a_job_that_holds_nothing_has_nothing_to_give_back():
    bench = Bench(job(role(replicas=2), scope="Job"))
    bench.step()
    bench.objects.clear()
    later(bench, 3 * PATIENCE_SECONDS)
    assert not bench.said(reasons.PLACES_GIVEN_BACK)

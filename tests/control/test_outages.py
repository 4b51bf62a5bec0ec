"""A runtime that does not answer: the story says since when and why, and when that is over. Not of a brief outage."""

from __future__ import annotations

from typing import Any

from airflow_training.control import reasons
from airflow_training.control.decide import decide
from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import Event, Request
from airflow_training.control.outages import BRIEF_SECONDS
from airflow_training.control.rollup import rollup, timestamp
from tests.builders import Bench, job

WHY = "cannot connect to the cluster: connection refused"


def away(bench: Bench) -> Bench:
    bench.reachable, bench.why = False, WHY
    bench.step()
    return bench


def status(bench: Bench) -> dict[str, Any]:
    return rollup(
        bench.job, bench.ledger, run_id="r", progress={}, usage=[], output=None, now=bench.now
    )


def test_an_outage_that_lasts_is_told_once_and_so_is_its_end():
    bench = Bench(job()).settle()
    since = bench.now
    away(bench)
    assert bench.last.wake_at is not None
    assert bench.last.wake_at <= since + BRIEF_SECONDS
    assert status(bench)["reason"] != reasons.RUNTIME_UNREACHABLE
    for _ in range(3):
        bench.step(seconds=BRIEF_SECONDS)
    (told,) = bench.said(reasons.RUNTIME_UNREACHABLE)
    words = f"the runtime does not answer since {timestamp(since)}: {WHY}"
    assert (told.message, told.level, told.data["since"]) == (words, "warning", since)
    document = status(bench)
    assert (document["condition"], document["reason"], document["message"]) == (
        "RuntimeUnknown",
        reasons.RUNTIME_UNREACHABLE,
        words,
    )
    assert document["unreachable"] == {"since": timestamp(since), "why": WHY}
    bench.reachable = True
    bench.step(seconds=5)
    bench.step()
    (back,) = bench.said(reasons.RUNTIME_ANSWERS)
    assert back.message == "the runtime answers again, after 35 s"
    assert status(bench)["unreachable"] is None
    assert status(bench)["reason"] == reasons.RUNNING


def test_a_brief_outage_is_no_news():
    bench = away(Bench(job()).settle())
    bench.step(seconds=BRIEF_SECONDS / 2)
    bench.reachable = True
    bench.step(seconds=1)
    assert not bench.said(reasons.RUNTIME_UNREACHABLE)
    assert not bench.said(reasons.RUNTIME_ANSWERS)


def test_who_cannot_even_prepare_the_run_tells_it_too():
    spec = job()
    ledger = new_ledger(spec, now=0.0, activate_all=True)
    told: list[Event] = []
    for now in (1.0, 1.0 + BRIEF_SECONDS, 2.0 + BRIEF_SECONDS):
        decision = decide(spec, ledger, [], None, now, unanswered=WHY)
        ledger, told = decision.new_ledger, [*told, *decision.events]
    assert ledger.job.condition == "RuntimeUnknown"
    (event,) = (each for each in told if each.reason == reasons.RUNTIME_UNREACHABLE)
    assert WHY in event.message


def test_a_run_that_is_over_waits_for_no_runtime():
    bench = Bench(job())
    spec, ledger = bench.job, bench.ledger
    for now, asked in ((1.0, []), (20.0, [Request(id=1, kind="stop")])):
        ledger = decide(spec, ledger, asked, None, now, unanswered=WHY).new_ledger
    assert ledger.job.is_over, "nothing of it was ever begun"
    document = rollup(spec, ledger, run_id="r", progress={}, usage=[], output=None, now=21.0)
    assert (document["state"], document["unreachable"]) == ("Stopped", None)

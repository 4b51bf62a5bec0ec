"""That nobody drives a run is told: since when, why, what to type, and what ended meanwhile once somebody does."""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_training.control.model import Event
from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.state.records import Driver
from airflow_training.state.store import Lease
from airflow_training.supervise.absences import absence_of, absence_of_run, what_to_type
from airflow_training.supervise.lease_keeper import LeaseKeeper
from airflow_training.supervise.owners import Owner, forget_owner, new_owner
from airflow_training.supervise.status import run_status
from tests.builders import job, role
from tests.waiting import PATIENCE, until

FOREVER = Script(default=Behaviour(run_seconds=None))
LEASE = Lease(run="r", owner="me", generation=1, expires_at=1_000.0)


def dead_owner() -> str:
    owner = new_owner()
    forget_owner(owner)
    return owner


def elsewhere() -> str:
    mine = Owner.parse(new_owner())
    assert mine is not None
    return str(dataclasses.replace(mine, host="node-7~1", pid=42))


# what is known of the driver ------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("driver", "since", "why"),
    [
        pytest.param(Driver(), None, "", id="nobody-ever-drove-it"),
        pytest.param(Driver(owner=elsewhere(), until=1_001.0), None, "", id="it-is-driven"),
        pytest.param(
            Driver(owner=elsewhere(), until=999.0),
            984.0,
            "process 42 on node-7 is not heard of",
            id="not-heard-of",
        ),
        pytest.param(
            Driver(owner=dead_owner(), until=1_010.0), 995.0, " has ended", id="seen-dead"
        ),
        pytest.param(Driver(owner="", until=990.0), None, "", id="given-up-just-now"),
        pytest.param(Driver(owner="", until=955.0), None, "", id="handed-over-to-a-slow-one"),
        pytest.param(Driver(owner="", until=900.0), 900.0, "has left it", id="given-up"),
    ],
)
def test_since_when_and_why_nobody_drives_a_run(driver, since, why):
    found = absence_of(driver, now=1_000.0)
    assert (None if found is None else found.since) == since
    if found is not None:
        assert why in str(found)
        assert str(found).startswith("nobody has driven it since 1970-01-01T00:1")


async def test_what_to_type_is_what_takes_the_run_up_again(stage):
    uid = stage.launch(job(role("worker"), runtime="local"), run_id="my run")
    stage.store.acquire(uid, owner=dead_owner())
    told = run_status(stage.store, uid)
    assert told["state"] == "Pending"
    assert told["reason"] == "NotDriven"
    assert told["message"].startswith("nobody has driven it since ")
    assert told["undriven"]["what_to_do"] == (
        "airflow-training run --from-run 'my run' --run-id 'my run' goes on with it,"
        " airflow-training kill 'my run' ends it"
    )
    of_airflow = dataclasses.replace(
        stage.store.run(uid), key=dataclasses.replace(stage.store.run(uid).key, source="airflow")
    )
    found = absence_of(stage.store.driver(uid), now=stage.store.now())
    assert found is not None
    assert "task reconcile" in what_to_type(of_airflow, found)


async def test_a_run_that_is_driven_or_over_is_told_as_it_is(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        assert run_status(stage.store, uid)["undriven"] is None
        stage.store.add_request(uid, "stop")
        await until(lambda: stage.store.ledger(uid).job.drained)
    stage.store.acquire(uid, owner=dead_owner())
    assert run_status(stage.store, uid)["undriven"] is None


async def test_a_run_was_driven_until_something_was_last_done_with_its_instances(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    ledger = stage.store.ledger(uid)
    (entry,) = ledger.instances.values()
    acted_at = entry.last_transition_at
    driver = Driver(owner=dead_owner(), until=acted_at + 10.0)  # renewed 5 s before
    found = absence_of_run(
        stage.store.run(uid), ledger.job, driver, now=acted_at + 60.0, instances=[entry]
    )
    assert found is not None
    assert found.since == acted_at


# who comes back says so -----------------------------------------------------------------------------
async def test_who_takes_up_a_run_of_a_lost_driver_says_what_ended_meanwhile(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker", 3), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    stage.store.acquire(uid, owner=dead_owner())
    for index in (0, 2):
        stage.runtime.finish(uid, "worker", index)
    async with stage.driving(uid):
        await until(lambda: "DrivenAgain" in stage.reasons(uid))
    (told,) = [e.event for e in stage.store.events(uid) if e.event.reason == "DrivenAgain"]
    assert "has ended; it is driven again after " in told.message
    assert "2 instances ended meanwhile: worker-0, worker-2; " in told.message
    _, _, goes_on = told.message.partition("; it goes on with ")
    assert re.fullmatch(
        r"1 instance that runs: worker-1 \(attempt 0, since [\d-]+T[\d:]+Z\)", goes_on
    )
    reasons = stage.reasons(uid)
    assert reasons.index("DrivenAgain") < reasons.index("InstanceSucceeded")


async def test_who_is_handed_a_run_says_nothing(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    for _ in range(2):
        async with stage.driving(uid):
            await until(lambda: stage.live(uid))
    assert "DrivenAgain" not in stage.reasons(uid)


async def test_what_is_told_comes_into_the_story_though_the_store_fails(stage, monkeypatch):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    stage.store.acquire(uid, owner=dead_owner())
    commit = stage.store.commit
    refused: list[Sequence[Event]] = []

    def break_once(*arguments: Any, events: Sequence[Event] = (), **named: Any) -> None:
        if not refused and any(each.reason == "DrivenAgain" for each in events):
            refused.append(events)
            raise RuntimeUnavailable("the connection broke")
        commit(*arguments, events=events, **named)

    monkeypatch.setattr(stage.store, "commit", break_once)
    async with stage.driving(uid):
        await until(lambda: "DrivenAgain" in stage.reasons(uid))
        stage.runtime.finish(uid, "worker", 0)
        await until(lambda: stage.store.ledger(uid).job.drained)
    assert refused
    assert stage.reasons(uid).count("DrivenAgain") == 1


async def test_a_run_that_is_reopened_was_not_left(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        stage.store.add_request(uid, "stop")
        await until(lambda: stage.store.ledger(uid).job.drained)
    stage.store.acquire(uid, owner=dead_owner())
    stage.store.add_request(uid, "reopen")
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    assert "DrivenAgain" not in stage.reasons(uid)


@pytest.mark.parametrize(
    ("answered", "refused", "asked", "why"),
    [
        pytest.param(0.0, False, 40.0, "was stopped, or its machine slept", id="stalled"),
        pytest.param(0.0, True, 40.0, "the store did not answer", id="the-store-was-away"),
        pytest.param(20.0, False, 25.0, "the store did not answer", id="a-slow-answer"),
    ],
)
def test_a_driver_that_stood_still_knows_it(monkeypatch, answered, refused, asked, why):
    now = 100.0 + answered
    monkeypatch.setattr("airflow_training.supervise.lease_keeper.steady_now", lambda: now)
    held = LeaseKeeper(LEASE, seconds=15.0, taken_at=100.0)
    if refused:
        held.not_renewed()
    now = 100.0 + asked
    held.renewed(LEASE, asked_at=now)
    absence = held.take_absence()
    assert absence is not None
    assert absence.since == 985.0
    assert why in absence.why
    held.renewed(LEASE, asked_at=now)
    assert held.take_absence() is None, "it is told once"


async def test_a_run_that_ends_as_its_driver_comes_back_says_both(stage):
    stage.runtime.script = FOREVER
    uid = stage.launch(job(role("worker"), runtime="memory"))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
    stage.store.acquire(uid, owner=dead_owner())
    stage.runtime.finish(uid, "worker", 0)
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Succeeded"
    (told,) = [e.event for e in stage.store.events(uid) if e.event.reason == "DrivenAgain"]
    assert told.message.endswith("ended meanwhile: worker-0; it goes on with 0 instances that run")

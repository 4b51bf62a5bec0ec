"""What a runtime refuses for now waits, says why, and costs nothing; what it can never prepare ends the run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.model import AttemptId, Create
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import Addresses, InstanceRef, InstanceSpec, Outcome
from airflow_training.supervise.refusals import Refusals
from airflow_training.supervise.status import run_status
from tests.builders import job, role
from tests.supervise.test_loop import FOREVER
from tests.waiting import PATIENCE, until

FULL = "exceeded quota: small, requested: pods=1, used: pods=4, limited: pods=4"


class Full(MemoryRuntime):
    """A cluster whose quota is used up for as long as it says something."""

    words = FULL

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        if not self.words:
            return await super().create(instances)
        return [
            Outcome(ref=each.ref, result="refused", reason="QuotaExceeded", message=self.words, patience_seconds=60.0)
            for each in instances
        ]  # fmt: skip


def a_job(**fields: Any) -> Any:
    return job(role("worker", 2), runtime="memory", **fields)


async def test_an_instance_without_quota_says_so_and_since_when_and_begins_once_there_is_some(
    stage,
):
    stage.runtime = Full(script=FOREVER)
    uid = stage.launch(a_job())

    def said() -> set[tuple[str, str]]:
        entries = stage.store.ledger(uid).instances.values()
        return {(each.reason, each.message) for each in entries}

    def shown() -> Any:
        return run_status(stage.store, uid)["instances"]

    async with stage.driving(uid):
        await until(lambda: said() == {("QuotaExceeded", FULL)}, seen=said)
        first = [(each["state"], each["waiting_since"]) for each in shown()]
        assert all(state == "pending" and since for state, since in first)
        stage.runtime.words = FULL.replace("used: pods=4", "used: pods=3")
        await until(lambda: said() == {("QuotaExceeded", stage.runtime.words)}, seen=said)
        assert [(each["state"], each["waiting_since"]) for each in shown()] == first
        stage.runtime.words = ""
        await until(lambda: len(stage.live(uid)) == 2)
        await until(lambda: not any(each["waiting_since"] for each in shown()))
        ledger = stage.store.ledger(uid)
        assert ledger.job.restarts == ()
        assert {each.attempt for each in ledger.instances.values()} == {0}
    told = [(each.index, each.message) for each in stage.events if each.reason == "QuotaExceeded"]
    assert len(told) == len(set(told)) == 4, "once, and again as the words change"


async def test_a_run_that_finds_no_place_in_time_ends_in_the_words_of_the_server(stage):
    stage.runtime = Full(script=FOREVER)
    uid = stage.launch(a_job(schedule_timeout_seconds=1.0))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Failed"
    ended = stage.store.ledger(uid).job
    assert ended.reason == "ScheduleTimeout"
    assert FULL in ended.message
    assert ended.root_cause is not None
    assert FULL in ended.root_cause["message"]


class Unfit(MemoryRuntime):
    """A cluster that will never take the job's Services, or its ConfigMaps once it creates."""

    capabilities = replace(MemoryRuntime.capabilities, leaves_objects=True)
    while_creating = False
    removed = 0

    def refuse(self) -> None:
        raise InputError.of(
            code="not_allowed", field="metadata.name", message='Service "7b": no label'
        )

    async def prepare(self, run: RunRef, job: Any, **of: Any) -> Addresses:
        if not self.while_creating:
            self.refuse()
        return await super().prepare(run, job, **of)

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        self.refuse()
        return await super().create(instances)

    async def remove(self, run: RunRef) -> None:
        self.removed += 1
        await super().remove(run)


@pytest.mark.parametrize("while_creating", [False, True])
async def test_what_can_never_be_prepared_ends_the_run_at_once_and_leaves_nothing(
    stage, while_creating
):
    stage.runtime = runtime = Unfit(script=FOREVER)
    runtime.while_creating = while_creating
    uid = stage.launch(a_job(max_restarts=9))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Failed"
    ledger = stage.store.ledger(uid)
    assert (ledger.job.condition, ledger.job.reason) == ("SubmitFailed", "CannotBePrepared")
    assert ledger.job.message == 'metadata.name: Service "7b": no label'
    assert (ledger.job.restarts, ledger.job.drained, runtime.removed) == ((), True, 1)
    assert ledger.job.root_cause is not None
    assert (ledger.job.root_cause["id"], ledger.job.root_cause["retryable"]) == (
        "not-admitted",
        "no",
    )
    assert stage.store.lease(uid) is None
    assert "InstanceFailed" not in stage.reasons(uid)


async def test_the_first_pass_ends_such_a_run_too(stage):
    stage.runtime = Unfit()
    uid = stage.launch(a_job())
    assert await stage.supervisor(uid).first_pass()
    ended = stage.store.ledger(uid).job
    assert (ended.reason, ended.drained) == ("CannotBePrepared", True)


class Moody(MemoryRuntime):
    """A cluster that makes nothing for a while, as if it never would."""

    refuses = False

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        if self.refuses:
            raise InputError.of(code="not_allowed", field="metadata.name", message="denied")
        return await super().create(instances)


async def test_who_reopens_a_run_that_still_ends_asks_anew_for_what_was_refused_before(stage):
    stage.runtime = runtime = Moody(script=FOREVER)
    runtime.refuses = True
    uid = stage.launch(a_job())

    def ledger() -> Any:
        return stage.store.ledger(uid).job

    async with stage.driving(uid):
        await until(lambda: ledger().state == "Failed")
        assert (ledger().reason, ledger().drained) == ("CannotBePrepared", False)
        runtime.refuses = False
        stage.store.add_request(uid, "reopen")
        await until(lambda: ledger().epoch == 1)
        await until(lambda: ledger().state in ("Running", "Failed"), seen=ledger)
        assert ledger().state == "Running", ledger().message


# how often ---------------------------------------------------------------------------------------
RUN = RunRef(uid="u", job="digits", namespace="default", controller="here")


def refused_for(hours: float, *, patience_seconds: float) -> list[int]:
    """Return when a create is asked for that is refused each time, of passes every second."""
    refusals, asked = Refusals(), []
    create = Create(key=("worker", 0), attempt_id=AttemptId())
    ref = InstanceRef(run=RUN, key=create.key, attempt_id=create.attempt_id)
    outcome = Outcome(ref=ref, result="refused", patience_seconds=patience_seconds)
    for now in range(int(hours * 3600)):
        if refusals.due([create], now=now):
            asked.append(now)
            refusals.note([create], [outcome], now=now)
    return asked


def test_what_is_refused_is_asked_for_ever_less_often():
    asked = refused_for(1.0, patience_seconds=60.0)
    assert asked[1] <= 2
    assert 60 < len(asked) < 140, "about once a minute, each at a time of its own"
    pauses = [after - before for before, after in itertools.pairwise(asked[8:])]
    assert len(set(pauses)) > 5
    assert max(pauses) <= 60
    assert max(refused_for(0.1, patience_seconds=4.0)) > 355


def test_what_is_over_in_a_moment_is_told_only_when_it_lasts():
    create = Create(key=("worker", 0), attempt_id=AttemptId())
    ref = InstanceRef(run=RUN, key=create.key, attempt_id=create.attempt_id)
    outcome = Outcome(ref=ref, result="refused", message="another attempt still lives")
    refusals = Refusals()
    news = [refusals.note([create], [outcome], now=now) for now in range(0, 60, 10)]
    assert news == [False, False, False, True, False, False]
    (known,) = refusals.known
    assert (known.reason, known.message) == ("CreateRefused", "another attempt still lives")
    assert refusals.note([create], [], now=61)
    assert not refusals.known
    assert refusals.seconds_left(now=61) == float("inf")


def test_who_is_not_wanted_any_more_waits_for_nothing():
    create = Create(key=("worker", 0), attempt_id=AttemptId())
    ref = InstanceRef(run=RUN, key=create.key, attempt_id=create.attempt_id)
    refusals = Refusals()
    refusals.note([create], [Outcome(ref=ref, result="refused", patience_seconds=60.0)], now=1)
    assert refusals.seconds_left(now=1) > 0
    assert list(refusals.due([], now=1)) == []
    assert refusals.seconds_left(now=1) == float("inf")

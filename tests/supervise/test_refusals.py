"""What a runtime refuses for now waits, says why, and costs nothing; what it can never prepare ends the run."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control import transitions
from airflow_training.control.actions import Create
from airflow_training.control.attempts import AttemptId
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError, RefusedForNow
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


@pytest.fixture
def settled(monkeypatch):
    """A runtime in memory lists at once what it made, and what it did not make."""
    monkeypatch.setattr(transitions, "SETTLE_SECONDS", 0.1)


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
        stage.runtime.words = FULL.replace("quota: small", "quota: other")
        await until(lambda: said() == {("QuotaExceeded", stage.runtime.words)}, seen=said)
        assert [(each["state"], each["waiting_since"]) for each in shown()] == first
        stage.runtime.words = ""
        await until(lambda: len(stage.live(uid)) == 2)
        await until(lambda: not any(each["waiting_since"] for each in shown()))
        ledger = stage.store.ledger(uid)
        assert ledger.job.restarts == ()
        assert {each.attempt for each in ledger.instances.values()} == {0}
    told = [(each.index, each.message) for each in stage.events if each.reason == "QuotaExceeded"]
    assert len(told) == len(set(told)) == 2, "once for the role, and again as the words change"


@pytest.mark.usefixtures("settled")
async def test_a_run_that_finds_no_place_in_time_ends_in_the_words_of_the_server(stage):
    stage.runtime = Full(script=FOREVER)
    uid = stage.launch(a_job(schedule_timeout_seconds=1.0))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Failed"
    ended = stage.store.ledger(uid).job
    assert ended.reason == "ScheduleTimeout"
    assert FULL in ended.message
    assert ended.root_cause is not None
    assert FULL in ended.root_cause.message


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


@pytest.mark.usefixtures("settled")
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
    assert (ledger.job.root_cause.id, ledger.job.root_cause.retryable) == (
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
    create = Create(key=InstanceKey("worker", 0), attempt_id=AttemptId())
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
    create = Create(key=InstanceKey("worker", 0), attempt_id=AttemptId())
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


def test_what_has_a_grace_is_final_after_it_whatever_it_waited_for_before():
    create = Create(key=InstanceKey("worker", 0), attempt_id=AttemptId())
    ref = InstanceRef(run=RUN, key=create.key, attempt_id=create.attempt_id)
    full = Outcome(ref=ref, result="refused", reason="QuotaExceeded", patience_seconds=60.0)
    odd = replace(full, reason="Forbidden", message="the moon is full", grace_seconds=300.0)
    refusals = Refusals()
    refusals.note([create], [full], now=0)
    assert refusals.take_final(now=9999) == []
    refusals.note([create], [odd], now=1000)
    refusals.note([create], [odd], now=1200)
    assert refusals.take_final(now=1299) == []
    refusals.note([create], [full], now=1250)
    refusals.note([create], [odd], now=1280)
    assert refusals.take_final(now=1500) == []
    (final,) = refusals.take_final(now=1580)
    assert (final.result, final.message) == ("impossible", "the moon is full")
    assert refusals.take_final(now=1580) == []
    assert refusals.seconds_left(now=1580) == float("inf")


async def test_the_first_pass_leaves_such_a_run_to_the_next_holder(stage):
    stage.runtime = FullOfServices(script=FOREVER)
    uid = stage.launch(a_job())
    assert await stage.supervisor(uid).first_pass()
    ledger = stage.store.ledger(uid)
    assert (ledger.job.state, ledger.job.condition) == ("Starting", "Submitting")
    async with stage.driving(uid):
        await until(
            lambda: stage.store.ledger(uid).instances["worker", 0].reason == "QuotaExceeded"
        )


class Quota:
    """What is left of a quota, and a hundred instances that wait for it."""

    def __init__(self, *, left: int, patience_seconds: float = 60.0) -> None:
        self.left = left
        self.refusals = Refusals()
        self.creates = [
            Create(key=InstanceKey("worker", n), attempt_id=AttemptId()) for n in range(100)
        ]
        self.asked: list[int] = []
        self.patience_seconds = patience_seconds
        self.ask(now=0)

    def ask(self, *, now: float) -> None:
        """Ask for what is due until nothing is, as passes do."""
        while due := self.refusals.due(self.creates, now=now):
            self.asked.append(len(due))
            refused = due[self.left :]
            self.left -= len(due) - len(refused)
            self.creates = [
                each for each in self.creates if each not in due[: len(due) - len(refused)]
            ]
            outcomes = [
                Outcome(
                    ref=InstanceRef(run=RUN, key=each.key), result="refused", reason="QuotaExceeded",
                    patience_seconds=self.patience_seconds,
                )
                for each in refused
            ]  # fmt: skip
            self.refusals.note(due, outcomes, now=now)

    def made(self, more: int, *, now: float) -> list[int]:
        """Let there be more room; return how many were asked for each time."""
        self.left, self.asked = self.left + more, []
        self.refusals.room_made(now=now)
        self.ask(now=now)
        return self.asked


def test_more_room_is_tried_with_one_and_with_more_as_long_as_all_get_in():
    quota = Quota(left=0)
    assert quota.asked == [100]
    assert quota.made(0, now=0.1) == [1]
    assert quota.made(1, now=0.2) == [1, 2]
    assert len(quota.creates) == 99
    assert quota.made(1000, now=0.3) == [1, 2, 4, 8, 16, 32, 36]
    assert quota.creates == []


def test_who_finds_no_room_though_there_was_some_asks_again_soon():
    quota = Quota(left=0)
    for now in (10, 100, 1000):
        quota.ask(now=now)
    quota.made(0, now=1001)
    assert quota.refusals.seconds_left(now=1001) <= 1


def test_what_is_asked_for_each_moment_anyway_needs_no_room():
    quota = Quota(left=0, patience_seconds=4.0)
    assert quota.made(1, now=0.1) == []


class FullOfServices(MemoryRuntime):
    """A cluster that has no room for what all instances need, for as long as it says something."""

    words = "exceeded quota: small, requested: services=1, used: services=4, limited: services=4"

    async def prepare(self, run: RunRef, job: Any, **of: Any) -> Addresses:
        if self.words:
            raise RefusedForNow(self.words, reason="QuotaExceeded", patience_seconds=60.0)
        return await super().prepare(run, job, **of)


async def test_what_all_instances_need_is_waited_for_by_all_of_them(stage):
    stage.runtime = FullOfServices(script=FOREVER)
    uid = stage.launch(a_job())

    def said() -> set[tuple[str, str]]:
        return {(each.reason, each.message) for each in stage.store.ledger(uid).instances.values()}

    async with stage.driving(uid):
        await until(lambda: said() == {("QuotaExceeded", stage.runtime.words)}, seen=said)
        assert stage.store.ledger(uid).job.condition == "Submitting"
        stage.runtime.words = ""
        await until(lambda: len(stage.live(uid)) == 2)
        assert stage.store.ledger(uid).job.restarts == ()


def test_who_is_not_wanted_any_more_waits_for_nothing():
    create = Create(key=InstanceKey("worker", 0), attempt_id=AttemptId())
    ref = InstanceRef(run=RUN, key=create.key, attempt_id=create.attempt_id)
    refusals = Refusals()
    refusals.note([create], [Outcome(ref=ref, result="refused", patience_seconds=60.0)], now=1)
    assert refusals.seconds_left(now=1) > 0
    assert list(refusals.due([], now=1)) == []
    assert refusals.seconds_left(now=1) == float("inf")

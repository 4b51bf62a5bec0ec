"""Runs of the engine whose cluster changes: their ranks follow in their processes, whoever drives them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.control.reports import ProgressReport, Regrouping
from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.faults import Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import InstanceRef, InstanceSpec
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner
from tests.supervise.conftest import Stage
from tests.supervise.kills import Killed
from tests.supervise.replanning.lab import FAR, FOREVER
from tests.waiting import PATIENCE, until

MASTER, FIRST, SECOND = ("master", 0), ("worker", 0), ("worker", 1)


def plans(stage: Stage, uid: str) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the plan's file of each instance that lives."""
    found = {}
    for key in stage.live(uid):
        files = stage.runtime.spec(uid, *key).files
        [text] = [text for path, text in files.items() if path.endswith("plan.json")]
        found[key] = json.loads(text)
    return found


def numbers(stage: Stage, uid: str) -> dict[tuple[str, int], int]:
    return {
        key: plan.get("revision", {}).get("number", 0) for key, plan in plans(stage, uid).items()
    }


def told(stage: Stage, uid: str, reason: str) -> list[Any]:
    return [each.event for each in stage.store.events(uid) if each.event.reason == reason]


def uids(stage: Stage, uid: str) -> dict[tuple[str, int], str]:
    return {key: each.uid for key, each in stage.runtime.live(uid).items()}


async def test_ranks_follow_a_smaller_plan_and_a_larger_one_in_their_processes(stage, lab):
    uid = stage.launch(lab.engine_job())
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        before = uids(stage, uid)
        assert set(numbers(stage, uid).values()) == {0}
        [given] = stage.runtime.spec(uid, *FIRST).replaced
        assert given.endswith("plan.json"), "a pod cannot be given other files later"
        stage.runtime.report(uid, *MASTER, ProgressReport(step=10, total_steps=FAR))
        lab.has(2)
        await until(lambda: numbers(stage, uid) == {MASTER: 1, FIRST: 1})
        shrunk = plans(stage, uid)
        assert uids(stage, uid) == {key: before[key] for key in (MASTER, FIRST)}
        assert [shrunk[key]["strategy"]["dp"] for key in (MASTER, FIRST)] == [2, 2]
        places = [shrunk[key]["revision"] for key in (MASTER, FIRST)]
        assert [(each["rank"], each["world"]) for each in places] == [(0, 2), (1, 2)]
        [meeting] = {(each["host"], each["port"]) for each in places}
        environment = stage.runtime.spec(uid, *MASTER).env
        assert meeting == (environment["MASTER_ADDR"], int(environment["MASTER_PORT"]))

        lab.has(3)
        await until(lambda: numbers(stage, uid) == {MASTER: 2, FIRST: 2, SECOND: 2})
        newcomer = stage.runtime.spec(uid, *SECOND)
        assert (newcomer.env["RANK"], newcomer.env["WORLD_SIZE"]) == ("2", "3")
        assert uids(stage, uid).items() >= {key: before[key] for key in (MASTER, FIRST)}.items()
    ledger = stage.store.ledger(uid)
    assert (ledger.job.job_attempt, ledger.job.plan_revision) == (0, 2)
    assert ledger.job.restarts == ()
    lost, regained = told(stage, uid, "Replanned")
    assert lost.data["revision"] == 1
    assert (lost.data["lost_steps"], lost.data["moved_bytes"]) == (0, 0)
    assert "revision 1 of the plan, which ranks follow in their processes" in lost.message
    assert regained.data["moved_bytes"] > 0, "who comes new gets the state"


@pytest.mark.parametrize("told_by", ["runtime", "store"])
async def test_what_it_cost_is_told_beside_what_was_expected(stage, lab, told_by):
    """Pods report to the API server, which writes to the store alone."""
    uid = stage.launch(lab.engine_job())
    again = Regrouping(
        at=9.0, ranks=2, step=11, source="rank 0", lost_steps=0, seconds=1.5, revision=1, moved_bytes=0
    )  # fmt: skip
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        lab.has(2)
        await until(lambda: numbers(stage, uid) == {MASTER: 1, FIRST: 1})
        report = ProgressReport(step=12, total_steps=FAR, regrouped=(again,))
        if told_by == "runtime":
            stage.runtime.report(uid, *MASTER, report)
        else:
            stage.store.progress.save(uid, {InstanceKey(*MASTER): report})
        await until(lambda: told(stage, uid, "Regrouped"))
    [event] = told(stage, uid, "Regrouped")
    [expected] = stage.store.job(uid).plan.moves
    assert event.data["expected"] == expected
    assert expected == {"revision": 1, "lost_steps": 0, "seconds": 5.0, "moved_bytes": 0}
    assert "was expected to lose 0 steps, 5.0 s and to move 0 bytes" in event.message


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"spec": {"restart": {"scope": "Job"}}}, "restart.scope is Job"),
        ({}, "the runtime memory cannot give instances another plan"),
    ],
)
async def test_where_ranks_cannot_follow_all_start_anew_and_are_told_why(
    stage, lab, monkeypatch, change, why
):
    if not change:
        can = replace(stage.runtime.capabilities, replaces_files=False)
        monkeypatch.setattr(stage.runtime, "capabilities", can)
    uid = stage.launch(lab.engine_job(**change))
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        lab.has(2)
        await until(lambda: stage.live(uid) == {MASTER, FIRST})
    assert stage.store.ledger(uid).job.job_attempt == 1
    assert stage.store.ledger(uid).job.plan_revision == 0
    [event] = told(stage, uid, "Replanned")
    assert f"all ranks start anew: {why}" in event.message
    assert why in event.data["anew"]


async def test_ranks_that_an_earlier_version_of_us_created_start_anew(stage, lab, monkeypatch):
    """Nobody there would write another plan into their file."""
    create = stage.runtime.create

    async def create_as_before(specs: Sequence[InstanceSpec]) -> Any:
        return await create([replace(each, replaced=frozenset()) for each in specs])

    monkeypatch.setattr(stage.runtime, "create", create_as_before)
    uid = stage.launch(lab.engine_job())
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        monkeypatch.setattr(stage.runtime, "create", create)
        lab.has(2)
        await until(lambda: stage.live(uid) == {MASTER, FIRST})
        assert all(stage.runtime.spec(uid, *key).replaced for key in (MASTER, FIRST))
    ledger = stage.store.ledger(uid)
    assert (ledger.job.job_attempt, ledger.job.plan_revision) == (1, 0)
    assert not ledger.job.restarts, "nobody is charged"
    [event] = told(stage, uid, "Replanned")
    assert "cannot give instances another plan" in event.data["anew"]


async def test_a_lost_rank_whose_place_is_gone_is_charged_once_and_the_others_go_on(stage, lab):
    uid = stage.launch(lab.engine_job())
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        before = uids(stage, uid)
        stage.runtime.finish(uid, *FIRST, exit_code=137, signal=9)
        lab.has(2)
        await until(lambda: set(numbers(stage, uid).values()) == {1})
        left = uids(stage, uid)
    assert left[MASTER] == before[MASTER]
    assert len(left) == 2
    ledger = stage.store.ledger(uid)
    assert len(ledger.job.restarts) == 1
    assert ledger.job.job_attempt == 0


class Mortal(MemoryRuntime):
    """Kills who gives plans, before or after it has."""

    def __init__(self, dice: random.Random) -> None:
        super().__init__(script=Script(default=FOREVER.default))
        self._dice = dice
        self.kills = 0

    def maybe_kill(self) -> None:
        if self._dice.random() < 0.4:
            self.kills += 1
            raise Killed

    async def replace_files(self, given: Sequence[tuple[InstanceRef, Mapping[str, str]]]) -> None:
        for each in given:
            self.maybe_kill()
            await super().replace_files([each])
        self.maybe_kill()


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_is_killed_between_deciding_writing_and_telling_each_revision_is_made_once(
    stage, lab, monkeypatch, seed
):
    stage.runtime = runtime = Mortal(random.Random(seed))
    uid = stage.launch(lab.engine_job())
    commit = stage.store.commit

    def commit_mortally(*arguments: Any, job: Any = None, **named: Any) -> None:
        if job is not None:
            runtime.maybe_kill()
        commit(*arguments, job=job, **named)
        if job is not None:
            runtime.maybe_kill()

    monkeypatch.setattr(stage.store, "commit", commit_mortally)

    async def drive() -> None:
        while True:
            holder = Supervisor(
                store=stage.store, runtime=runtime, run_uid=uid, owner=new_owner(), lease_seconds=2.0
            )  # fmt: skip
            try:
                await holder.run()
            except Killed:
                continue

    driving = asyncio.ensure_future(drive())
    try:
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        first = uids(stage, uid)[MASTER]
        stage.runtime.report(uid, *MASTER, ProgressReport(step=10, total_steps=FAR))
        for number, count in enumerate((2, 3, 2), start=1):
            lab.has(count)
            wanted = [number] * count
            await until(lambda: [*numbers(stage, uid).values()] == wanted)  # noqa: B023 - asked now
    finally:
        driving.cancel()
        await asyncio.wait([driving], timeout=PATIENCE)
    ledger = stage.store.ledger(uid)
    assert (ledger.job.plan_revision, ledger.job.job_attempt) == (3, 0)
    assert ledger.job.restarts == ()
    assert uids(stage, uid)[MASTER] == first
    assert [each.data["revision"] for each in told(stage, uid, "Replanned")] == [1, 2, 3]
    assert [each["revision"] for each in stage.store.job(uid).plan.moves] == [1, 2, 3]

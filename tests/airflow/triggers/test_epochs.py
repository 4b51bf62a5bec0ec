"""A task that is cleared opens the run again, or not."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.triggers.base import TaskSuccessEvent

from airflow_training.control.model import JobEntry, Ledger
from airflow_training.state.store import RunState
from airflow_training.triggers.epochs import begin_try
from airflow_training.triggers.reconcile import ReconcileTrigger
from tests.airflow.triggers.scenes import Scene, TaskInstance, outcome, started
from tests.builders import job, role
from tests.waiting import PATIENCE


@pytest.mark.parametrize(
    ("tries", "ended", "reopens"),
    [
        pytest.param([1], False, False, id="first-try"),
        pytest.param([1], True, False, id="first-try-of-a-run-that-ended-in-the-queue"),
        pytest.param([1, 1], True, False, id="the-triggerer-died-before-the-end-was-told"),
        pytest.param([1, 2], True, True, id="cleared-after-the-end"),
        pytest.param([1, 2], False, False, id="cleared-while-it-ran"),
        pytest.param([1, 2, 2], True, True, id="and-the-triggerer-died-then"),
    ],
)
def test_only_a_new_try_of_a_task_that_had_its_end_reopens_the_run(
    scene: Scene, tries: list[int], ended: bool, reopens: bool
):
    scene.launch(job(runtime="memory"))
    state = scene.store.read([scene.uid])[scene.uid]
    if ended:
        over = Ledger(job=JobEntry(state="Failed", drained=True), roles=state.ledger.roles)
        state = RunState(record=state.record, job=state.job, ledger=over, lease=None, last_seq=0)
    answers = [
        begin_try(scene.store, state, TaskInstance("reconcile", try_number=each)) for each in tries
    ]
    assert answers[-1] is reopens
    assert scene.kinds() == (["reopen"] if reopens else [])


async def test_clearing_a_role_alone_lends_the_run_a_loop(
    scene: Scene, role_task: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("airflow_training.triggers.following._ASK_SECONDS", 0.1)
    scene.behave(run_seconds=0.1, exit_code=3)
    scene.launch(job(role(restart_policy="Never"), runtime="memory"))
    first = role_task()
    await outcome(started(ReconcileTrigger(), "reconcile"))
    await asyncio.wait({first.task}, timeout=PATIENCE)
    scene.airflow.states = {"reconcile": "failed"}
    scene.behave(run_seconds=0.1)
    second = role_task(try_number=2)
    await asyncio.wait({second.task}, timeout=PATIENCE)
    assert isinstance(second.task.result()[0], TaskSuccessEvent)
    assert scene.ledger.job.epoch == 1

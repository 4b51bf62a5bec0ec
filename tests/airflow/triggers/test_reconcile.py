"""The trigger that drives a run: what becomes of it where its task ends, and where others drive too."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time.comms import ErrorResponse, GetTaskStates, TaskStatesResult
from airflow.triggers.base import TaskFailedEvent, TaskSuccessEvent

from airflow_training.operators.reconcile import ReconcileOperator
from airflow_training.triggers import base
from airflow_training.triggers.base import NO_RUN, GroupTrigger
from airflow_training.triggers.dependency import DependencyTrigger
from airflow_training.triggers.reconcile import ReconcileTrigger
from airflow_training.triggers.role import RoleTrigger
from tests.airflow.triggers.scenes import (
    CHECKPOINT,
    Running,
    Scene,
    TaskInstance,
    generation,
    outcome,
    started,
)
from tests.builders import job, role
from tests.rounds import Rounds
from tests.waiting import PATIENCE, until


async def test_reconcile_succeeds_with_the_job(scene: Scene, role_task: Any):
    scene.behave(run_seconds=0.1)
    scene.launch(job(runtime="memory"))
    role_task()
    event = await outcome(started(ReconcileTrigger(), "reconcile"))
    assert isinstance(event, TaskSuccessEvent)
    value = {"run": scene.uid, "state": "Succeeded", "checkpoint": None}
    assert event.xcoms == {"return_value": value}


@pytest.mark.parametrize("told", [False, True], ids=["nobody-to-tell", "success-callback"])
async def test_a_success_that_a_callback_waits_for_ends_on_a_worker(
    scene: Scene, role_task: Any, told: bool
):
    """Of a task that its trigger ends, Airflow runs no success callback."""
    callbacks: dict[str, Any] = {"on_success_callback": print} if told else {}
    with DAG("x", schedule=None):
        operator = ReconcileOperator(task_id="reconcile", **callbacks)
    scene.behave(run_seconds=0.1)
    scene.launch(job(runtime="memory"))
    role_task()
    assert operator.start_trigger_args is not None
    arguments = operator.start_trigger_args.trigger_kwargs or {}
    event = await outcome(started(ReconcileTrigger(**arguments), "reconcile"))
    assert isinstance(event, TaskSuccessEvent) is not told
    if told:
        value = {"run": scene.uid, "state": "Succeeded", "checkpoint": None}
        assert operator.resume({}, event.payload) == value


async def test_reconcile_fails_with_the_job_and_never_retries(scene: Scene, role_task: Any):
    scene.behave(run_seconds=0.1, exit_code=3)
    scene.launch(job(role(restart_policy="Never"), runtime="memory"))
    role_task()
    event = await outcome(started(ReconcileTrigger(), "reconcile"))
    assert "failed" in event.payload["message"]
    with DAG("x", schedule=None):
        operator = ReconcileOperator(task_id="reconcile")
    ti = TaskInstance("reconcile")
    with pytest.raises(AirflowFailException, match="InstanceFailed"):
        operator.resume({"ti": ti}, event.payload)  # type: ignore[typeddict-item]  # all it reads of one
    value = {"run": scene.uid, "state": "Failed", "checkpoint": None}
    assert ti.pushed == {"return_value": value}


@pytest.mark.parametrize("exit_code", [0, 1])
async def test_reconcile_hands_on_the_newest_checkpoint(
    scene: Scene, role_task: Any, exit_code: int
):
    """Also of a job that failed: that is the one whose checkpoint somebody wants."""
    scene.behave(run_seconds=0.1, exit_code=exit_code)
    scene.launch(job(role(restart_policy="Never"), runtime="memory"), checkpoint=CHECKPOINT)
    role_task()
    event = await outcome(started(ReconcileTrigger(), "reconcile"))
    value = (
        event.payload["value"] if exit_code else event.xcoms["return_value"]  # type: ignore[attr-defined]
    )
    assert value["checkpoint"] == CHECKPOINT.reference.to_document()
    assert len(json.dumps(value)) < 1024


@pytest.mark.parametrize(
    "trigger",
    [ReconcileTrigger(), RoleTrigger(role="worker"), DependencyTrigger(role="b", upstream="a")],
    ids=lambda each: type(each).__name__,
)
async def test_without_a_run_every_trigger_says_so_and_fails(scene: Scene, trigger: GroupTrigger):
    event = await outcome(started(trigger, "any"))
    if isinstance(trigger, ReconcileTrigger):
        assert event.payload == {"message": NO_RUN}
    else:
        assert isinstance(event, TaskFailedEvent)


@pytest.mark.parametrize(
    ("state", "stopped"),
    [
        pytest.param("failed", True, id="marked-failed"),
        pytest.param("success", True, id="marked-successful"),
        pytest.param("skipped", True, id="dag-run-timeout"),
        pytest.param("removed", True, id="removed"),
        pytest.param("deferred", False, id="a-stalled-triggerer-lost-it"),
        pytest.param("scheduled", False, id="cleared"),
        pytest.param(None, False, id="cleared-and-not-scheduled-yet"),
        pytest.param("up_for_retry", False, id="waits-for-its-retry"),
    ],
)
async def test_a_killed_reconcile_stops_the_job_only_when_the_task_is_over(
    scene: Scene, role_task: Any, state: str | None, stopped: bool
):
    scene.behave(run_seconds=None)
    scene.launch(job(runtime="memory"))
    role_task()
    running = Running(started(ReconcileTrigger(), "reconcile"))
    await until(lambda: scene.ledger.job.state == "Running", "the job runs")
    scene.airflow.states = {"reconcile": state}
    await running.cancel(by_user=True)
    if stopped:
        # nobody else is there any more: the loop itself goes on until nothing is alive
        await until(lambda: scene.ledger.job.drained, "the job drained")
        assert (scene.ledger.job.state, scene.runtime.live(scene.uid)) == ("Stopped", {})
    else:
        assert "stop" not in scene.kinds()
        assert len(scene.runtime.live(scene.uid)) == 1


@pytest.mark.parametrize("state", ["skipped", "failed", "success"])
async def test_a_task_that_was_over_before_a_triggerer_took_it_up_starts_nothing(
    scene: Scene, role_task: Any, state: str, monkeypatch: pytest.MonkeyPatch
):
    """Airflow leaves the trigger of a task that timed out while no triggerer was there."""
    monkeypatch.setattr(base, "_FRESH_SECONDS", 0.0)
    scene.launch(job(runtime="memory"))
    scene.airflow.states = {"reconcile": state}
    role_task()
    event = await outcome(started(ReconcileTrigger(), "reconcile"))
    assert event.payload == {"message": f"reconcile is {state}"}
    await until(lambda: scene.ledger.job.drained, "the run ended")
    record = scene.store.run(scene.uid)
    assert record is not None
    assert (record.state, record.queued) == ("Stopped", False)
    assert scene.ledger.job.started_at is None


async def test_a_task_that_was_over_before_it_began_reopens_nothing(scene: Scene, role_task: Any):
    scene.behave(run_seconds=0.1)
    scene.launch(job(runtime="memory"))
    first = role_task()
    await outcome(started(ReconcileTrigger(), "reconcile"))
    await asyncio.wait({first.task}, timeout=PATIENCE)
    scene.airflow.states = {"reconcile": "failed", "worker.run": "failed"}
    await outcome(started(ReconcileTrigger(), "reconcile", try_number=2))
    await asyncio.wait({role_task(try_number=2).task}, timeout=PATIENCE)
    loops = [each for each in asyncio.all_tasks() if each.get_name() == f"training {scene.uid}"]
    await asyncio.gather(*loops, return_exceptions=True)
    assert "reopen" not in scene.kinds()
    assert (scene.ledger.job.state, scene.ledger.job.epoch) == ("Succeeded", 0)


async def test_an_airflow_that_cannot_answer_fails_no_task(
    scene: Scene, role_task: Any, monkeypatch: pytest.MonkeyPatch
):
    """Its database may be busy just then."""

    async def broken(message: GetTaskStates) -> TaskStatesResult:
        raise AirflowRuntimeError(ErrorResponse(error=ErrorType.API_SERVER_ERROR))

    monkeypatch.setattr(scene.airflow, "asend", broken)
    monkeypatch.setattr(base, "_FRESH_SECONDS", 0.0)
    scene.behave(run_seconds=0.5)
    scene.launch(job(runtime="memory"))
    role = role_task()
    assert isinstance(await outcome(started(ReconcileTrigger(), "reconcile")), TaskSuccessEvent)
    await asyncio.wait({role.task}, timeout=PATIENCE)
    assert isinstance(role.task.result()[0], TaskSuccessEvent)


async def test_a_deleted_run_is_stopped(scene: Scene, role_task: Any):
    scene.behave(run_seconds=None)
    scene.launch(job(runtime="memory"))
    role_task()
    running = Running(started(ReconcileTrigger(), "reconcile"))
    await until(lambda: scene.ledger.job.state == "Running", "the job runs")
    scene.airflow.states = None
    await running.cancel(by_user=True)
    await until(lambda: scene.ledger.job.drained, "the job drained")
    assert scene.ledger.job.state == "Stopped"


async def test_another_triggerer_adopts_what_is_alive(scene: Scene, role_task: Any):
    scene.behave(run_seconds=None)
    scene.launch(job(runtime="memory"))
    role_task()
    first = Running(started(ReconcileTrigger(), "reconcile"))
    await until(lambda: scene.ledger.job.state == "Running", "the job runs")
    before = {key: each.uid for key, each in scene.runtime.live(scene.uid).items()}
    await first.cancel(by_user=False)
    second = Running(started(ReconcileTrigger(), "reconcile"))
    await until(lambda: generation(scene) == 2, "adopted")
    assert {key: each.uid for key, each in scene.runtime.live(scene.uid).items()} == before
    await second.cancel(by_user=False)


async def test_two_copies_of_reconcile_never_act_twice(scene: Scene, role_task: Any):
    """A stalled triggerer wakes up beside its successor: the lease decides."""
    scene.behave(run_seconds=1.0)
    scene.launch(job(role(replicas=3), runtime="memory"))
    role_task()
    copies = [Running(started(ReconcileTrigger(), "reconcile")) for _ in range(2)]
    await asyncio.wait([each.task for each in copies])
    events = [each.task.result()[0] for each in copies]
    assert all(isinstance(event, TaskSuccessEvent) for event in events)
    starts = [e.event for e in scene.store.events(scene.uid) if e.event.reason == "InstanceRunning"]
    assert len(starts) == 3
    for each in copies:
        await each.cancel(by_user=False)


@pytest.mark.parametrize(
    ("states", "kind"),
    [
        pytest.param({"worker.run": "failed"}, "stop", id="a-role-task-failed"),
        pytest.param({"worker.run": "upstream_failed"}, "stop", id="its-sensor-failed"),
        pytest.param({"worker.run": "skipped"}, "stop", id="skipped"),
        pytest.param({"worker.run": "success"}, "activate", id="marked-before-it-could-ask"),
    ],
)
async def test_reconcile_looks_after_tasks_that_cannot_speak_for_themselves(
    scene: Scene, states: Mapping[str, str | None], kind: str
):
    scene.behave(run_seconds=None)
    scene.launch(job(runtime="memory"))
    scene.airflow.states = dict(states)
    running = Running(started(ReconcileTrigger(watched=["worker.run"]), "reconcile"))
    await until(lambda: kind in scene.kinds(), f"a request to {kind}")
    await running.cancel(by_user=False)


async def test_reconcile_waits_for_roles_that_are_still_to_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    answers = Rounds(monkeypatch, scene.airflow, "asend")
    scene.launch(job(runtime="memory"))
    running = Running(started(ReconcileTrigger(watched=["worker.run"]), "reconcile"))
    await until(lambda: scene.store.lease(scene.uid) is not None, "it drives")
    scene.airflow.states = {"worker.run": None}
    looked = answers.more()
    await until(lambda: looked() or scene.kinds(), "it looked at them")
    assert scene.kinds() == []
    await running.cancel(by_user=False)

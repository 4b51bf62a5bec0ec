"""Triggers of role tasks and sensors, which only follow a run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent

from airflow_training.compiler.group import add_tasks
from airflow_training.compiler.shape import RoleShape
from airflow_training.documents.instances import InstanceKey
from airflow_training.operators.plan import PlanOperator
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.triggers.base import GroupTrigger
from airflow_training.triggers.dependency import DependencyTrigger
from airflow_training.triggers.reconcile import ReconcileTrigger
from airflow_training.triggers.role import RoleTrigger, verdict
from tests.airflow.triggers.scenes import Running, Scene, outcome, sensor_of, started, state_of
from tests.builders import after, job, role
from tests.waiting import PATIENCE, until


@pytest.mark.parametrize(
    ("role_state", "job_state", "root", "expected"),
    [
        pytest.param("Running", "Running", "", None, id="runs"),
        pytest.param("Succeeded", "Running", "", TaskSuccessEvent, id="ended-before-the-job"),
        pytest.param("Failed", "Running", "", None, id="failed-but-the-job-lives"),
        pytest.param("Failed", "Failed", "", TaskFailedEvent, id="failed-with-the-job"),
        pytest.param("Failed", "Succeeded", "", TaskSuccessEvent, id="untracked"),
        pytest.param("Stopped", "Succeeded", "", TaskSuccessEvent, id="parameter-server"),
        pytest.param("Stopped", "Failed", "", TaskSkippedEvent, id="another-role-failed"),
        pytest.param("Stopped", "Failed", "worker", TaskFailedEvent, id="it-is-the-root-cause"),
        pytest.param("Stopped", "Stopped", "", TaskSkippedEvent, id="killed"),
    ],
)
def test_a_role_task_fails_only_with_its_role_and_the_job(role_state, job_state, root, expected):
    found = verdict(state_of(role_state, job_state, root=root), "worker")
    assert found is None if expected is None else type(found) is expected


async def test_two_tries_of_a_role_task_ask_once(scene: Scene, role_task: Any):
    scene.behave(run_seconds=0.1)
    scene.launch(job(runtime="memory"))
    running = role_task()
    again = role_task()
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    await asyncio.wait({running.task, again.task}, timeout=PATIENCE)
    assert isinstance(running.task.result()[0], TaskSuccessEvent)
    activated = [e for e in scene.store.events(scene.uid) if e.event.reason == "RoleActivated"]
    assert len(activated) == 1
    await reconciling.cancel(by_user=False)


async def test_a_failed_role_shows_the_last_lines_of_its_instance(
    scene: Scene, role_task: Any, capsys: pytest.CaptureFixture[str]
):
    scene.behave(run_seconds=0.1, exit_code=3)
    scene.launch(job(role(restart_policy="Never"), runtime="memory"))
    running = role_task()
    await outcome(started(ReconcileTrigger(), "reconcile"))
    await asyncio.wait({running.task}, timeout=PATIENCE)
    assert isinstance(running.task.result()[0], TaskFailedEvent)
    assert "last lines of worker-0 (attempt 0)" in capsys.readouterr().out


async def test_a_sensor_ends_when_what_its_role_waits_for_is_there(scene: Scene, role_task: Any):
    scene.behave(run_seconds=0.5)
    scene.launch(
        job(role("master"), role("worker", 2, after("master", "Running")), runtime="memory")
    )
    role_task("master")
    sensor = started(DependencyTrigger(role="worker", upstream="master"), "worker.await_master")
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    assert isinstance(await outcome(sensor), TaskSuccessEvent)
    assert scene.ledger.instances[InstanceKey("master", 0)].was_running
    await reconciling.cancel(by_user=False)


@pytest.mark.parametrize(
    ("in_front_of_run", "asked"),
    [
        pytest.param("", ["activate"], id="nothing-else"),
        pytest.param("download", [], id="a-task-of-the-user"),
    ],
)
async def test_the_last_sensor_asks_for_its_role_unless_another_task_is_before_it(
    scene: Scene, role_task: Any, in_front_of_run: str, asked: list[str]
):
    waits = [after("master", "Running"), after("data", "Complete")]
    roles = [role("master"), role("data"), role("worker", 2, *waits)]
    scene.runtime.script = Script(
        default=Behaviour(run_seconds=60), roles={"data": Behaviour(run_seconds=0.3)}
    )
    scene.launch(job(*roles, runtime="memory"))
    with DAG("dag", schedule=None) as dag:
        plan = PlanOperator(task_id="plan")
        shapes = [RoleShape(name=each.name, waits_for=()) for each in roles[:2]]
        shapes.append(RoleShape(name="worker", waits_for=("master", "data")))
        add_tasks(shapes, group_id="", plan=plan)
        if in_front_of_run:
            EmptyOperator(task_id=in_front_of_run) >> dag.get_task("worker.run")
    role_task("master")
    role_task("data")
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    await outcome(sensor_of(dag, "worker.await_master"))
    assert not scene.ledger.roles["worker"].activated
    await outcome(sensor_of(dag, "worker.await_data"))
    by_sensor = [each.kind for each in scene.store.requests(scene.uid) if "await" in each.by]
    assert by_sensor == asked
    await reconciling.cancel(by_user=False)


async def test_a_sensor_fails_when_the_job_does_without_its_dependency(
    scene: Scene, role_task: Any
):
    scene.behave(run_seconds=0.1, exit_code=3)
    scene.launch(
        job(
            role("master", restart_policy="Never"),
            role("worker", 2, after("master", "Complete")),
            runtime="memory",
        )
    )
    role_task("master")
    sensor = started(DependencyTrigger(role="worker", upstream="master"), "worker.await_master")
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    assert isinstance(await outcome(sensor), TaskFailedEvent)
    await reconciling.cancel(by_user=False)


@pytest.mark.parametrize(
    ("trigger", "task_id"),
    [
        (RoleTrigger(role="worker"), "worker.run"),
        (DependencyTrigger(role="worker", upstream="master"), "worker.await_master"),
    ],
    ids=["role", "sensor"],
)
async def test_who_only_follows_ends_when_nobody_drives_the_run_any_more(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, trigger: GroupTrigger, task_id: str
):
    monkeypatch.setattr("airflow_training.triggers.following._ASK_SECONDS", 0.1)
    scene.launch(job(role("master"), role("worker", 1, "master"), runtime="memory"))
    scene.airflow.states = {"reconcile": "failed"}
    assert isinstance(await outcome(started(trigger, task_id)), TaskFailedEvent)


@pytest.mark.parametrize(
    ("state", "stops"),
    [("failed", True), ("skipped", True), ("success", False), ("deferred", False)],
)
async def test_a_role_that_is_taken_out_of_the_run_stops_the_job(
    scene: Scene, role_task: Any, state: str, stops: bool
):
    scene.launch(job(runtime="memory"))
    running = role_task()
    await until(lambda: scene.kinds() == ["activate"], "it asked")
    scene.airflow.states = {"worker.run": state}
    await running.cancel(by_user=True)
    assert ("stop" in scene.kinds()) is stops

"""Triggers against a real store, the memory runtime and an Airflow that only tells task states."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException, AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import task_runner
from airflow.sdk.execution_time.comms import ErrorResponse, GetTaskStates, TaskStatesResult
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import TaskFailedEvent, TaskSkippedEvent, TaskSuccessEvent, TriggerEvent

from airflow_training.compiler.group import add_tasks
from airflow_training.compiler.shape import RoleShape
from airflow_training.control.decide import new_ledger
from airflow_training.control.model import Event, JobEntry, Ledger, RoleEntry
from airflow_training.control.root_cause import cause_of_reason
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.operators.plan import PlanOperator
from airflow_training.operators.reconcile import ReconcileOperator
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import RunState, Store, open_store
from airflow_training.triggers import base, hosting, live_log, log_tail, reconcile
from airflow_training.triggers.access import run_key
from airflow_training.triggers.base import NO_RUN, GroupTrigger
from airflow_training.triggers.dependency import DependencyTrigger
from airflow_training.triggers.epochs import begin_try
from airflow_training.triggers.event_log import EventLogger, line_of
from airflow_training.triggers.reconcile import ReconcileTrigger
from airflow_training.triggers.role import RoleTrigger, verdict
from tests.builders import after, job, role
from tests.rounds import Rounds
from tests.waiting import PATIENCE, until


@dataclass
class TaskInstance:
    """What is read of a task instance, and what it pushes."""

    task_id: str
    try_number: int = 1
    map_index: int = -1
    dag_id: str = "dag"
    run_id: str = "manual"
    task: Any = None
    pushed: dict[str, Any] = field(default_factory=dict)

    def xcom_push(self, *, key: str, value: Any) -> None:
        self.pushed[key] = value


CHECKPOINT = CheckpointCommit(
    uri="s3://models/digits/checkpoints/vaqcvdyrk5xofpyy6bpq/0",
    step=900,
    digest="sha256:" + 64 * "a",
    at=1.0,
    seconds=1.5,
    bytes=4096,
)


@dataclass
class Airflow:
    """Answers only which state a task has. None: the run was deleted."""

    states: dict[str, str | None] | None = field(default_factory=dict)

    async def asend(self, message: GetTaskStates) -> TaskStatesResult:
        if self.states is None:
            return TaskStatesResult(task_states={})
        listed = {name: self.states.get(name, "deferred") for name in message.task_ids or ()}
        return TaskStatesResult(task_states={message.run_ids[0]: listed})  # type: ignore[index]


@dataclass
class Scene:
    """A queued run, the Airflow around it and the runtime below it."""

    store: Store
    runtime: MemoryRuntime
    airflow: Airflow
    uid: str = ""

    def launch(self, job: ResolvedJob, *, checkpoint: CheckpointCommit | None = None) -> None:
        key = run_key(self.store, TaskInstance("plan"), group_id="")
        self.uid = key.uid
        ledger = new_ledger(job, now=self.store.now(), activate_all=False)
        entry = dataclasses.replace(ledger.job, checkpoint=checkpoint)
        ledger = dataclasses.replace(ledger, job=entry)
        self.store.create_run(key, job, ledger, controller="test", queue=True)

    def behave(self, **behaviours: Any) -> None:
        """Set how the instances of every role behave."""
        self.runtime.script = Script(default=Behaviour(**behaviours))

    @property
    def ledger(self) -> Ledger:
        return self.store.ledger(self.uid)

    def kinds(self) -> list[str]:
        return [request.kind for request in self.store.requests(self.uid)]


@pytest.fixture
def scene(airflow_home: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    runtime = MemoryRuntime()
    for module in (hosting, live_log, log_tail):
        monkeypatch.setattr(module, "runtime_of", lambda name: runtime)
    monkeypatch.setattr(reconcile, "_WATCH_SECONDS", 0.01)
    airflow = Airflow()
    monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", airflow, raising=False)
    return Scene(store=open_store(), runtime=runtime, airflow=airflow)


def started(trigger: GroupTrigger, task_id: str, **task_instance: Any) -> GroupTrigger:
    """Return the trigger as a triggerer has it: rebuilt from its arguments, with its task."""
    classpath, arguments = trigger.serialize()
    assert classpath.endswith(type(trigger).__name__)
    again = type(trigger)(**arguments)
    again.task_instance = TaskInstance(task_id, **task_instance)  # type: ignore[assignment]
    return again


async def outcome(trigger: GroupTrigger) -> TriggerEvent:
    """Return the only event of a trigger."""
    try:
        found = [event async for event in trigger.run()]
    finally:
        await trigger.cleanup()
    assert len(found) == 1
    return found[0]


class Running:
    """A trigger that runs, until it is cancelled as a triggerer does it."""

    def __init__(self, trigger: GroupTrigger) -> None:
        self.trigger = trigger
        self.task = asyncio.create_task(outcome_without_cleanup(trigger))

    async def cancel(self, *, by_user: bool) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        if by_user:
            await self.trigger.on_kill()
        await self.trigger.cleanup()


async def outcome_without_cleanup(trigger: GroupTrigger) -> list[TriggerEvent]:
    return [event async for event in trigger.run()]


@pytest.fixture
async def role_task(scene: Scene) -> AsyncIterator[Any]:
    """Give a function that starts the role's trigger beside `reconcile`."""
    running: list[Running] = []

    def start(name: str = "worker", **task_instance: Any) -> Running:
        running.append(Running(started(RoleTrigger(role=name), f"{name}.run", **task_instance)))
        return running[-1]

    yield start
    for each in running:
        await each.cancel(by_user=False)


# reconcile ---------------------------------------------------------------------------------------
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


def generation(scene: Scene) -> int:
    """Return the lease's; 0 while nobody holds it: between two holders there is a moment."""
    lease = scene.store.lease(scene.uid)
    return 0 if lease is None else lease.generation


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


# roles and sensors ---------------------------------------------------------------------------------
def state_of(role_state: Any, job_state: Any, *, root: str = "") -> RunState:
    """Return a run in these states; a terminal job is drained."""
    spec = job()
    over = job_state in ("Succeeded", "Failed", "Stopped")
    cause = cause_of_reason(reason="Error", message="", at=None, role=root) if root else None
    return RunState(
        record=None,  # type: ignore[arg-type]  # the verdict does not look at it
        job=spec,
        ledger=Ledger(
            job=JobEntry(state=job_state, drained=over, root_cause=cause),
            roles={"worker": RoleEntry(role="worker", state=role_state)},
        ),
        lease=None,
        last_seq=0,
    )


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


def sensor_of(dag: DAG, task_id: str) -> GroupTrigger:
    """Return a sensor's trigger as a triggerer has it: with its task of the serialized DAG."""
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task(task_id)
    arguments = dag.get_task(task_id).trigger_arguments()
    return started(DependencyTrigger(**arguments), task_id, task=stored)


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


# epochs ------------------------------------------------------------------------------------------
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


# the story ---------------------------------------------------------------------------------------
async def test_each_event_is_told_once_and_in_order(scene: Scene):
    scene.launch(job(runtime="memory"))
    told: list[str] = []
    story = EventLogger(scene.store, scene.uid, tell=lambda level, text: told.append(text))
    scene.store.add_events(scene.uid, [Event(at=1, reason="One"), Event(at=2, reason="Two")])
    await story.catch_up()
    scene.store.add_events(scene.uid, [Event(at=3, reason="Three")])
    await story.catch_up()
    assert told[-3:] == ["One", "Two", "Three"]
    assert len(told) == len(set(told))


async def test_a_role_hears_only_of_itself(scene: Scene):
    scene.launch(job(role("a"), role("b"), runtime="memory"))
    told: list[str] = []
    story = EventLogger(
        scene.store, scene.uid, tell=lambda level, text: told.append(text), role="b"
    )
    scene.store.add_events(
        scene.uid, [Event(at=1, reason="One", role="a"), Event(at=2, reason="Two", role="b")]
    )
    await story.catch_up()
    assert told == ["b: Two"]


@pytest.mark.parametrize(
    ("event", "line"),
    [
        (Event(at=0, reason="JobStarted", message="launch begins"), "JobStarted: launch begins"),
        (Event(at=0, reason="Running", role="worker"), "worker: Running"),
        (
            Event(
                at=0,
                reason="InstanceRestarted",
                message="exit code 3",
                role="worker",
                index=1,
                attempt=2,
                rule="my-rule",
            ),
            "worker-1 (attempt 2): InstanceRestarted: exit code 3 [rule my-rule]",
        ),
    ],
)
def test_a_line_says_who_what_and_why(event: Event, line: str):
    assert line_of(event) == line

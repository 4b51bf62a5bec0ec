"""A queued run with the Airflow around it, which only tells task states, and triggers as a triggerer has them."""

from __future__ import annotations

import asyncio
import dataclasses
from dataclasses import dataclass, field
from typing import Any

from airflow.sdk import DAG
from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
from airflow.serialization.serialized_objects import DagSerialization
from airflow.triggers.base import TriggerEvent

from airflow_training.control.first_ledger import new_ledger
from airflow_training.control.model import JobEntry, Ledger, RoleEntry
from airflow_training.control.root_cause import cause_of_reason
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import CheckpointCommit
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import RunState, Store
from airflow_training.triggers.access import run_key
from airflow_training.triggers.base import GroupTrigger
from airflow_training.triggers.dependency import DependencyTrigger
from tests.builders import job


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


def generation(scene: Scene) -> int:
    """Return the lease's; 0 while nobody holds it: between two holders there is a moment."""
    lease = scene.store.lease(scene.uid)
    return 0 if lease is None else lease.generation


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


def sensor_of(dag: DAG, task_id: str) -> GroupTrigger:
    """Return a sensor's trigger as a triggerer has it: with its task of the serialized DAG."""
    stored = DagSerialization.from_dict(DagSerialization.to_dict(dag)).get_task(task_id)
    arguments = dag.get_task(task_id).trigger_arguments()
    return started(DependencyTrigger(**arguments), task_id, task=stored)

"""Where processes stand, followed beside the decisions: told, observed, stored, and checked on return."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest
from sqlalchemy import update

from airflow_training.control.attempts import AttemptId
from airflow_training.control.model import InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.control.observations import InstanceState, Observation, Observations
from airflow_training.control.reports import ProcessReport, ProgressReport
from airflow_training.control.subtask_snapshot import STATE_CHECKSUM_MISMATCH, read_snapshot
from airflow_training.control.subtasks import rank_states
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved_blocks import CheckpointCommit, ResolvedCheckpoint
from airflow_training.runtimes.faults import Behaviour, Script
from airflow_training.state.environment import digest_of
from airflow_training.state.models import SubtasksRow
from airflow_training.supervise.followers.processes import Processes
from airflow_training.supervise.stored_records import StoredRecords
from tests.builders import job, restorable, role
from tests.checkpoints.groups import train
from tests.supervise.conftest import Stage
from tests.waiting import PATIENCE, until

KEPT = ResolvedCheckpoint(uri="unused")


def a_job(replicas=2, **more):
    more.setdefault("scope", "Job")
    made = job(role("worker", replicas), runtime="memory", scope=more.pop("scope"))
    return dataclasses.replace(made, checkpoint=KEPT, **more)


class Desk:
    """One run, what is seen of its instances, and who follows its processes."""

    def __init__(self, stage: Stage, made, *, root: str = "/nowhere", step: int | None = None):
        self.store = stage.store
        self.uid = stage.launch(made)
        self.job = made
        self.seen: dict[tuple[str, int], Observation] = {}
        self.ledger = Ledger(
            job=JobEntry(
                checkpoint=None
                if step is None
                else CheckpointCommit(uri=root, step=step, digest="d", at=1.0)
            ),
            roles={
                each.name: RoleEntry(role=each.name, replicas=each.replicas) for each in made.roles
            },
            instances={InstanceKey("worker", 0): InstanceEntry(key=InstanceKey("worker", 0))},
        )
        self.root = root
        self.progress: dict[InstanceKey, ProgressReport] = {}
        self.processes = self.another()

    def another(self) -> Processes:
        return Processes(
            store=self.store,
            uid=self.uid,
            state=lambda: (self.job, self.ledger),
            instances=lambda: [*self.seen.values()],
            root=lambda group: self.root,
            on_progress=self.progress.update,
        )

    def show(
        self, index: int, state: InstanceState, *lines: ProcessReport, attempt: int = 0
    ) -> None:
        self.seen["worker", index] = Observation(
            key=InstanceKey("worker", index),
            uid=f"{index}-{attempt}",
            attempt_id=AttemptId(attempt=attempt),
            state=state,
            progress=ProgressReport(subtasks=lines) if lines else None,
        )

    async def poll(self, group: str = "") -> list[str]:
        """Return the states that are in the store after one look."""
        await self.processes.poll()
        return [*rank_states(read_snapshot(self.store.subtasks.of_run(self.uid)[group]))]


def line(rank, state, sequence=1, *, generation=1, **more):
    return ProcessReport(rank=rank, generation=generation, sequence=sequence, state=state, **more)


async def test_before_anything_is_told_an_instance_is_one_process(stage):
    desk = Desk(stage, a_job(3))
    assert await desk.poll() == ["PENDING"] * 3
    desk.show(0, "running")
    desk.show(2, "failed")
    assert await desk.poll() == ["STARTING", "PENDING", "FAILED"]
    desk.show(2, "pending", attempt=1)
    assert await desk.poll() == ["STARTING", "PENDING", "PENDING"]


async def test_an_instance_that_dies_takes_all_its_processes_with_it(stage):
    desk = Desk(stage, a_job(2))
    desk.show(0, "running", *(line(rank, "RUNNING", 3, world=4) for rank in (0, 3)))
    desk.show(1, "running", *(line(rank, "SAVING", 4, world=4) for rank in (1, 2)))
    assert await desk.poll() == ["RUNNING", "SAVING", "SAVING", "RUNNING"]
    desk.show(1, "failed", *(line(rank, "SAVING", 4, world=4) for rank in (1, 2)))
    assert await desk.poll() == ["RUNNING", "FAILED", "FAILED", "RUNNING"]


async def test_the_end_of_an_older_attempt_is_nothing_to_the_new_generation(stage):
    desk = Desk(stage, a_job(2))
    desk.show(0, "running", line(0, "RUNNING", 3))
    desk.show(1, "failed", line(1, "RUNNING", 3))
    assert await desk.poll() == ["RUNNING", "FAILED"]
    desk.show(0, "running", line(0, "STARTING", generation=2))
    assert await desk.poll() == ["STARTING", "PENDING"]
    desk.show(1, "running", line(1, "RESTORING", 2, generation=2), attempt=1)
    assert await desk.poll() == ["STARTING", "RESTORING"]


async def test_what_reached_the_store_another_way_counts_too(stage):
    desk = Desk(stage, a_job(1))
    reference = CheckpointCommit(uri="s3://models/run/0", step=10, digest="sha256:10", at=1.0)
    said = ProgressReport(subtasks=(line(0, "SAVED", 4, verified=(10,)),), checkpoint=reference)
    desk.store.progress.save(desk.uid, {InstanceKey("worker", 0): said})
    assert await desk.poll() == ["SAVED"]
    assert restorable(desk.processes.groups[""]) == 10
    assert (
        desk.progress[InstanceKey("worker", 0)].checkpoint == reference
    )  # whoever follows commits is told


async def test_independent_instances_are_groups_of_their_own(stage):
    desk = Desk(stage, a_job(2, scope="Instance"))
    desk.show(1, "running", line(0, "RUNNING", 3, group="worker-1", world=1))
    assert await desk.poll("worker-1") == ["RUNNING"]
    assert await desk.poll("worker-0") == ["PENDING"]
    assert set(desk.store.subtasks.of_run(desk.uid)) == {"worker-0", "worker-1"}


async def test_the_record_that_a_save_names_is_kept(stage):
    desk = Desk(stage, a_job(1))
    named = '{"number": 0}'
    desk.store.environments.save(desk.uid, {InstanceKey("worker", 0): [named]})
    desk.show(0, "running", line(0, "SAVED", 4, verified=(10,), environment=digest_of(named)))
    await desk.poll()
    later = [f'{{"number": {n}}}' for n in range(1, 30)]
    desk.store.environments.save(desk.uid, {InstanceKey("worker", 0): later})
    kept = desk.store.environments.of_run(desk.uid)[InstanceKey("worker", 0)]
    assert kept[0].digest == digest_of(named)
    assert len(kept) == 11
    document = desk.store.subtasks.of_run(desk.uid)[""]
    assert document["environment"].startswith("sha256:")


async def test_nothing_is_written_while_nothing_changes(stage):
    desk = Desk(stage, a_job(1))
    desk.show(0, "running", line(0, "RUNNING", 3))
    await desk.poll()
    with desk.store._db.write() as connection:
        connection.execute(update(SubtasksRow).values(body='"untouched"'))
    await desk.processes.poll()
    assert desk.store.subtasks.of_run(desk.uid) == {"": "untouched"}


# coming back ------------------------------------------------------------------------------------------
async def with_a_save(stage, **more) -> Desk:
    desk = Desk(stage, a_job(1), **more)
    desk.show(0, "running", line(0, "SAVED", 4, verified=(10,), world=1))
    await desk.poll()
    return desk


def damage(desk: Desk) -> None:
    [(group, document)] = desk.store.subtasks.of_run(desk.uid).items()
    desk.store.subtasks.save(desk.uid, {group: {**document, "generation": 3}})


async def test_a_holder_goes_on_from_the_snapshot_of_the_one_before(stage):
    desk = await with_a_save(stage)
    desk.seen.clear()
    again = desk.another()
    found = await again.resume(now=5.0)
    assert (found.events, found.not_after) == ([], None)
    assert again.groups == desk.processes.groups
    assert restorable(again.groups[""]) == 10


async def test_a_damaged_snapshot_is_built_again_from_the_markers(stage, tmp_path):
    from airflow_training.checkpoints.group import Group

    root = str(tmp_path / "c")
    train(Group.open(root), 3, 7)
    desk = await with_a_save(stage, root=root)
    damage(desk)
    again = desk.another()
    found = await again.resume(now=5.0)
    assert [each.reason for each in found.events] == [STATE_CHECKSUM_MISMATCH]
    assert found.not_after is None
    assert restorable(again.groups[""]) == 7


@pytest.mark.parametrize("body", ['"text"', "{", "null"])
async def test_without_markers_an_earlier_step_is_used(stage, body):
    desk = await with_a_save(stage, step=10, root="/proc/nothing/here")
    with desk.store._db.write() as connection:
        connection.execute(update(SubtasksRow).values(body=body))
    found = await desk.another().resume(now=5.0)
    assert [each.reason for each in found.events] == [STATE_CHECKSUM_MISMATCH]
    assert found.not_after == 9


async def test_the_loop_tells_a_damaged_snapshot_and_goes_back_a_step(stage, tmp_path):
    made = dataclasses.replace(a_job(1), checkpoint=ResolvedCheckpoint(uri=str(tmp_path / "c")))
    stage.runtime.script = Script(default=Behaviour(run_seconds=None))
    uid = stage.launch(made)
    stage.store.subtasks.save(uid, {"": {"format": 1}})
    async with stage.driving(uid):
        await until(lambda: stage.store.ledger(uid).job.state == "Running")
        told = [each.reason for each in stage.events]
        assert told.count(STATE_CHECKSUM_MISMATCH) == 1
        stored = [each.event.reason for each in stage.store.events(uid)]
        assert stored.count(STATE_CHECKSUM_MISMATCH) == 1


async def test_a_driven_run_leaves_where_its_processes_ended(stage):
    stage.runtime.script = Script(default=Behaviour(run_seconds=0.05))
    uid = stage.launch(a_job(2))
    assert await asyncio.wait_for(stage.supervisor(uid).run(), PATIENCE) == "Succeeded"
    assert [*rank_states(read_snapshot(stage.store.subtasks.of_run(uid)[""]))] == ["DONE", "DONE"]


# records of instances that failed ----------------------------------------------------------------
async def test_a_failure_without_records_is_judged_by_those_in_the_store(stage):
    uid = stage.launch(a_job(2))
    line = '{"at": 1.0, "on": "exit"}'
    stage.store.environments.save(uid, {InstanceKey("worker", index): [line] for index in range(2)})
    own = '{"at": 2.0}'
    seen = Observations(
        instances=(
            Observation(key=InstanceKey("worker", 0), uid="a", state="failed"),
            Observation(key=InstanceKey("worker", 0), uid="b", state="running"),
            Observation(key=InstanceKey("worker", 1), uid="c", state="failed", environment=(own,)),
        )
    )
    records = StoredRecords(stage.store, uid)
    found = await records.add(seen)
    assert found is not None
    assert [each.environment for each in found.instances] == [(line,), (), (own,)]
    assert await records.add(None) is None
    assert await records.add(seen) == found

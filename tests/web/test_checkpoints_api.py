"""What a run has saved, whether it was read back, and what a restore would find."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_training.control import reasons
from airflow_training.control.model import Event, OwnCheckpoints, Recovery
from airflow_training.control.reports import ProcessReport, RejectedCheckpoint
from airflow_training.control.subtask_snapshot import write_snapshot
from airflow_training.control.subtasks import apply_reports, new_subtasks
from airflow_training.documents.resolved_blocks import (
    CheckpointCommit,
    CheckpointReference,
    FromRun,
    ResolvedCheckpoint,
    SaveEverySteps,
)
from airflow_training.state.store import RunState, open_store
from airflow_training.web.checkpoints import CheckpointPage, RunLink, checkpoint_page
from tests.state.samples import START, a_job, a_ledger, take, worker
from tests.web.conftest import a_run

ROOT = "s3://models/digits/first-abcde"


def a_commit(
    step: int, *, lineage: int = 0, at: float | None = None, own: str = ""
) -> CheckpointCommit:
    return CheckpointCommit(
        uri=f"{ROOT}/{lineage}" + (f"/{own}" if own else ""),
        step=step,
        digest=f"{lineage}-{step}-{at}",
        at=START + step if at is None else at,
        seconds=2.0,
        stall_seconds=0.25,
        bytes=50_000,
    )


def committed(commit: CheckpointCommit) -> Event:
    return Event(
        at=commit.at,
        reason=reasons.CHECKPOINT_COMMITTED,
        message=f"step {commit.step}",
        data={"checkpoint": commit.to_document()},
    )


def page(*events: Event, subtasks: Any = None, workers: Any = (), **more: Any) -> CheckpointPage:
    block = more.pop(
        "block", ResolvedCheckpoint(uri="s3://models/digits", every=SaveEverySteps(10))
    )
    source = more.pop("source", None)
    state = RunState(
        record=None,  # type: ignore[arg-type]  # nothing of it is used
        job=dataclasses.replace(a_job(), checkpoint=block),
        ledger=a_ledger(*workers, **more),
        lease=None,
        last_seq=0,
    )
    snapshots = {} if subtasks is None else {"": write_snapshot(subtasks)}
    return checkpoint_page(state, events, snapshots, source=source)


def shown(of: CheckpointPage) -> list[list[tuple[int, str, bool, bool]]]:
    return [
        [(each.step, each.state, each.kept, each.restorable) for each in lineage.checkpoints]
        for lineage in of.lineages
    ]


def test_each_save_is_told_once_with_what_it_took():
    commits = [a_commit(step) for step in (10, 20)]
    found = page(
        committed(commits[0]), checkpoint=commits[1], recovery=Recovery(older=(commits[0],))
    )
    [lineage] = found.lineages
    newest = lineage.checkpoints[0]
    assert (newest.step, newest.bytes, newest.seconds, newest.stall_seconds) == (
        20,
        50_000,
        2,
        0.25,
    )
    assert [each.step for each in lineage.checkpoints] == [20, 10]
    assert (lineage.number, lineage.began) == (0, "since the run began")
    assert (found.asked, found.every, found.keep) == (True, "every 10 steps", 3)


def test_a_step_that_all_ranks_have_read_back_is_told_so():
    subtasks = apply_reports(
        new_subtasks(2, generation=1),
        [
            ProcessReport(rank=rank, generation=1, sequence=1, state="STARTING", verified=steps)
            for rank, steps in ((0, (20, 30)), (1, (20,)))
        ],
    )
    found = page(*(committed(a_commit(step)) for step in (10, 20, 30)), subtasks=subtasks)
    told = {each.step: (each.state, each.told) for each in found.lineages[0].checkpoints}
    assert told == {
        30: ("partly read back", "by 1 of 2 ranks"),
        20: ("read back", "by all 2 ranks"),
        10: ("not read back", ""),
    }


def test_a_damaged_one_says_why_and_is_not_offered():
    rejected = RejectedCheckpoint(at=START + 99, step=30, why="shards/ab: the digest is another")
    turned = Event(
        at=START + 100, reason=reasons.STEPPED_BACK, message="from step 30 to step 20: x"
    )
    found = page(
        *(committed(a_commit(step)) for step in (10, 20, 30)),
        turned,
        recovery=Recovery(rejected=(rejected,)),
    )
    newest = found.lineages[0].checkpoints[0]
    assert (newest.state, newest.told) == ("damaged", "shards/ab: the digest is another")
    assert not newest.restorable
    assert [each.text for each in found.lineages[0].turns] == ["from step 30 to step 20: x"]
    again = page(committed(a_commit(30, at=START + 200)), recovery=Recovery(rejected=(rejected,)))
    assert shown(again) == [[(30, "not read back", True, True)]], "it was saved after that"


def test_the_newest_that_are_whole_stay():
    rejected = RejectedCheckpoint(at=START + 99, step=40, why="cut")
    commits = [committed(a_commit(step)) for step in (10, 20, 30, 40, 50)]
    block = ResolvedCheckpoint(uri=ROOT, keep=2)
    [found] = shown(page(*commits, block=block, recovery=Recovery(rejected=(rejected,))))
    assert [(step, kept, offered) for step, _, kept, offered in found] == [
        (50, True, True),
        (40, True, False),
        (30, True, True),
        (20, False, False),
        (10, False, False),
    ]
    sparse = dataclasses.replace(block, keep_every=2)
    assert all(offered for *_, offered in shown(page(*commits, block=sparse))[0]), (
        "some of them stay"
    )


def test_training_that_was_begun_anew_is_a_lineage_of_its_own():
    fresh = Event(at=START + 25, reason=reasons.FRESH_JOB, message="worker-0: exit code 1")
    found = page(
        committed(a_commit(10)),
        committed(a_commit(20)),
        fresh,
        committed(a_commit(10, lineage=1, at=START + 40)),
        recovery=Recovery(lineage=1),
    )
    assert [(each.number, each.began) for each in found.lineages] == [
        (1, "begun anew: worker-0: exit code 1"),
        (0, "since the run began"),
    ]
    assert shown(found) == [
        [(10, "not read back", True, True)],
        [(20, "not read back", True, True), (10, "not read back", True, False)],
    ], "of step 10 a restore finds the newer one"
    nothing = page(committed(a_commit(10)), fresh, recovery=Recovery(lineage=1))
    assert [len(each.checkpoints) for each in nothing.lineages] == [0, 1]


def test_instances_that_save_alone_are_named():
    own = OwnCheckpoints(newest=a_commit(10, own="worker-1"), recovery=Recovery())
    found = page(committed(a_commit(10, own="worker-0")), workers=[worker(1, own=own)])
    told = [(each.instance, each.restorable) for each in found.lineages[0].checkpoints]
    assert sorted(told) == [("worker-0", True), ("worker-1", True)]


def test_what_a_run_began_with_is_told():
    block = ResolvedCheckpoint(
        uri=ROOT,
        resume=FromRun("monday"),
        initial=CheckpointReference(uri=f"{ROOT}/0", step=40, digest="d"),
        passed_over=("step 50 is damaged: cut",),
    )
    link = RunLink(dag="~", uid="abc", run_id="monday")
    found = page(block=block, source=link)
    [resumed] = found.resumed_from
    assert (resumed.step, resumed.text, resumed.run) == (40, "run monday", link)
    assert found.passed_over == ["step 50 is damaged: cut"]
    assert found.lineages == []


def test_a_job_without_checkpoints_says_so():
    found = page(block=None)
    assert (found.asked, found.lineages) == (False, [])


@pytest.mark.parametrize("dag", ["digits", "secret"])
def test_the_run_it_went_on_from_is_linked_where_the_user_may_read_it(client: Any, dag: str):
    source = a_run("monday", dag=dag)
    run = a_run("tuesday")
    store = open_store()
    block = ResolvedCheckpoint(
        uri=ROOT,
        resume=FromRun("monday"),
        initial=CheckpointReference(uri=f"{ROOT}/0", step=40, digest="d"),
    )
    lease, ledger = take(store, run.uid), store.ledger(run.uid)
    job = dataclasses.replace(store.job(run.uid), checkpoint=block)
    store.replace_job(run.uid, job, ledger, generation=lease.generation)
    store.commit(run.uid, lease=lease, old=ledger, new=ledger, events=[committed(a_commit(10))])
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/checkpoints").json()
    [resumed] = answer["resumed_from"]
    expected = {"dag": "digits", "uid": source.uid, "run_id": "monday"}
    assert resumed["run"] == (expected if dag == "digits" else None)
    assert [each["step"] for each in answer["lineages"][0]["checkpoints"]] == [10]

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
    source, scope = more.pop("source", None), more.pop("scope", "Job")
    address = more.pop("address", ROOT)
    job = dataclasses.replace(a_job(), checkpoint=block)
    state = RunState(
        record=None,  # type: ignore[arg-type]  # nothing of it is used
        job=dataclasses.replace(job, restart=dataclasses.replace(job.restart, scope=scope)),
        ledger=a_ledger(*workers, **more),
        lease=None,
        last_seq=0,
    )
    snapshots = {} if subtasks is None else {"": write_snapshot(subtasks)}
    return checkpoint_page(state, events, snapshots, source=source, address=address)


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


def test_of_older_ones_every_nth_stays_and_only_what_is_there_is_offered():
    block = ResolvedCheckpoint(uri=ROOT, keep=2, keep_every=3)
    # after a restart numbers go on, whatever the steps are
    commits = [dataclasses.replace(a_commit(10 * place), number=place + 4) for place in range(1, 7)]
    [found] = shown(page(*map(committed, commits), block=block))
    assert [(step, kept, offered) for step, _, kept, offered in found] == [
        (60, True, True),
        (50, True, True),
        (40, False, False),
        (30, False, False),
        (20, True, True),
        (10, False, False),
    ]
    untold = [dataclasses.replace(each, number=None) for each in commits]
    lineage = page(*map(committed, untold), block=block).lineages[0].checkpoints
    assert all(each.kept and each.restorable for each in lineage), (
        "20 is there, as is known of none"
    )
    assert [each.told.startswith("may be gone") for each in lineage] == [False] * 2 + [True] * 4
    [found] = shown(
        page(*map(committed, untold), block=dataclasses.replace(block, keep_every=None))
    )
    assert [offered for *_, offered in found] == [True, True, False, False, False, False]


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
    found = page(
        committed(a_commit(10, own="worker-0")), workers=[worker(1, own=own)], scope="Instance"
    )
    told = [(each.instance, each.restorable) for each in found.lineages[0].checkpoints]
    assert sorted(told) == [("worker-0", True), ("worker-1", True)]


def alone(steps: Any, *, rejected: Any = ()) -> list[Event]:
    """Return the story of workers that save alone: (index, step), and which of these were damaged."""
    saved = [committed(a_commit(step, own=f"worker-{index}")) for index, step in steps]
    damaged = [
        Event(
            at=START + 99,
            reason=reasons.CHECKPOINT_REJECTED,
            message=f"step {step} is not restored: cut",
            role="worker",
            index=index,
            data={"step": step},
        )
        for index, step in rejected
    ]
    return [*saved, *damaged]


def test_one_instance_that_finds_its_own_damaged_says_nothing_of_the_others():
    story = alone([(0, 10), (1, 10)], rejected=[(1, 10)])
    known = RejectedCheckpoint(at=START + 98, step=10, why="cut")
    found = page(*story, scope="Instance", recovery=Recovery(rejected=(known,)))
    told = {each.instance: each.state for each in found.lineages[0].checkpoints}
    assert told == {"worker-0": "not read back", "worker-1": "damaged"}


def test_instances_that_save_alone_go_on_from_a_step_that_each_has():
    story = alone([(0, 10), (1, 10), (0, 20), (1, 25)])
    assert page(*story, scope="Instance").restorable_steps == {10}
    assert page(*story, *alone([(5, 30)]), scope="Instance").restorable_steps == {10}


def test_what_was_left_behind_when_training_went_back_is_not_offered():
    back = Event(at=START + 35, reason=reasons.STEPPED_BACK, message="from step 30 to step 10: x")
    commits = [committed(a_commit(step)) for step in (10, 20, 30)]
    assert page(*commits, back).restorable_steps == {10}
    later = committed(a_commit(40))
    assert page(*commits, back, later).restorable_steps == {10, 40}
    untold = committed(a_commit(15, at=START + 50))
    assert page(*commits, untold).restorable_steps == {10, 15}
    cleared = Recovery(at_most=20, exactly=True, stepped_back_at=START + 60)
    assert page(*commits, recovery=cleared).restorable_steps == {10, 20}


def test_only_what_lies_where_a_new_run_looks_is_offered():
    commits = [committed(a_commit(step)) for step in (10, 20)]
    assert page(*commits).restorable_steps == {10, 20}
    assert page(*commits, address="s3://elsewhere/first-abcde").restorable_steps == set()
    assert page(*commits, address="").restorable_steps == set()


def test_an_address_without_a_number_is_one_lineage():
    bare = dataclasses.replace(a_commit(10), uri="s3://somewhere/else")
    found = page(committed(bare))
    assert [(each.number, len(each.checkpoints)) for each in found.lineages] == [(None, 1)]
    assert found.restorable_steps == set()


@pytest.mark.parametrize("lacking", ["uri", "step", "digest", "at"])
def test_an_event_that_names_no_checkpoint_is_passed_over(lacking: str):
    told = committed(a_commit(20))
    checkpoint = {key: value for key, value in told.data["checkpoint"].items() if key != lacking}
    cut = dataclasses.replace(told, data={"checkpoint": checkpoint})
    assert [each.step for each in page(committed(a_commit(10)), cut).lineages[0].checkpoints] == [
        10
    ]


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


@pytest.mark.parametrize(
    ("dag", "ours"),
    [
        pytest.param("digits", True, id="that-run"),
        pytest.param("secret", True, id="not-for-this-user"),
        pytest.param("digits", False, id="another-run-of-the-name"),
    ],
)
def test_the_run_it_went_on_from_is_linked_where_the_user_may_read_it(
    client: Any, dag: str, ours: bool
):
    source = a_run("monday", dag=dag)
    run = a_run("tuesday")
    store = open_store()
    saved_by = source.uid[:5] if ours else "abcde"
    block = ResolvedCheckpoint(
        uri=ROOT,
        resume=FromRun("monday"),
        initial=CheckpointReference(
            uri=f"s3://models/digits/monday-{saved_by}/0", step=40, digest="d"
        ),
    )
    lease, ledger = take(store, run.uid), store.ledger(run.uid)
    job = dataclasses.replace(store.job(run.uid), checkpoint=block)
    store.replace_job(run.uid, job, ledger, generation=lease.generation)
    store.commit(run.uid, lease=lease, old=ledger, new=ledger, events=[committed(a_commit(10))])
    answer = client.get(f"/api/dags/digits/trainings/{run.uid}/checkpoints").json()
    [resumed] = answer["resumed_from"]
    expected = {"dag": "digits", "uid": source.uid, "run_id": "monday"}
    assert resumed["run"] == (expected if dag == "digits" and ours else None)
    assert [each["step"] for each in answer["lineages"][0]["checkpoints"]] == [10]

"""Which followers a run has, in which order, and how what they know comes together."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import pytest

from airflow_training.control.attempts import AttemptKey
from airflow_training.control.causes import RootCause
from airflow_training.control.model import Decision, JobEntry, Ledger
from airflow_training.control.observations import Observation, Observations
from airflow_training.control.reasons import MAX_RESTARTS_EXCEEDED
from airflow_training.control.reports import ProcessReport, ProgressReport, RejectedCheckpoint
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.documents.resolved_blocks import CheckpointCommit, ResolvedCheckpoint
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.state.store import Store
from airflow_training.supervise.followers.checkpointing import CheckpointReferences
from airflow_training.supervise.followers.failures import FailureFollower
from airflow_training.supervise.followers.follower import Evidence, FollowedRun
from airflow_training.supervise.followers.selection import followers_of
from airflow_training.supervise.watcher import Watcher
from tests.builders import job, role


def a_run(*, checkpoint: ResolvedCheckpoint | None) -> FollowedRun:
    made = replace(job(role("worker", 1)), checkpoint=checkpoint)
    return FollowedRun(
        store=cast("Store", None),  # making followers asks for nothing
        runtime=MemoryRuntime(),
        ref=RunRef(uid="u", job="digits", namespace="default", controller="c"),
        watcher=cast("Watcher", None),
        state=lambda: (made, Ledger()),
        may_create=lambda: True,
        progress={},
        now=lambda: 0.0,
        wake=lambda: None,
    )


@pytest.mark.parametrize(
    ("checkpoint", "read_logs", "expected"),
    [
        pytest.param(
            None,
            False,
            ["ProgressFollower", "AbsenceFollower", "FailureFollower", "LimitFollower"],
            id="any-run",
        ),
        pytest.param(
            None,
            True,
            [
                "ProgressFollower",
                "AbsenceFollower",
                "DelayedLogFollower",
                "FailureFollower",
                "LimitFollower",
            ],
            id="logs",
        ),
        pytest.param(
            ResolvedCheckpoint(uri="unused"),
            False,
            [
                "ProgressFollower",
                "AbsenceFollower",
                "FailureFollower",
                "CheckpointReferences",
                "Processes",
                "LimitFollower",
            ],
            id="checkpoints",
        ),
    ],
)
def test_a_run_has_the_followers_that_its_job_asks_for(checkpoint, read_logs, expected):
    """Progress comes first, so that the last look of the others finds all of it in the store."""
    followers = followers_of(a_run(checkpoint=checkpoint), read_logs=read_logs)
    assert [type(each).__name__ for each in followers] == expected


def test_what_followers_know_comes_together():
    commit = CheckpointCommit(uri="/c", step=1, digest="d", at=1.0)
    rejected = (InstanceKey("worker", 0), RejectedCheckpoint(at=1.0, step=2, why="damaged"))
    known = (
        Evidence(undiagnosed=[AttemptKey(InstanceKey("worker", 0), 0, 1)])
        | Evidence(committed=[commit])
        | Evidence(rejected=[rejected])
    )
    assert (known.undiagnosed, known.committed) == (
        (AttemptKey(InstanceKey("worker", 0), 0, 1),),
        (commit,),
    )
    assert known.rejected == (rejected,)


async def test_a_rejected_checkpoint_is_given_to_decisions_until_one_is_stored():
    """Whether its report came by itself or with what was seen of an instance that has ended since."""
    run, news = a_run(checkpoint=ResolvedCheckpoint(uri="unused")), []
    following = CheckpointReferences(
        run=run.ref, state=run.state, on_news=lambda: news.append("wake up")
    )

    def report(*steps: int) -> ProgressReport:
        rejected = tuple(RejectedCheckpoint(at=1.0, step=step, why="") for step in steps)
        line = ProcessReport(rank=0, generation=2, sequence=2, state="RUNNING", rejected=rejected)
        return ProgressReport(subtasks=(line,))

    following.on_progress({InstanceKey("worker", 1): report(30)})
    ended = Observation(key=InstanceKey("worker", 0), uid="u", state="failed", progress=report(20))
    known = await following.evidence(Observations(instances=[ended]))
    assert [(key, each.step) for key, each in known.rejected] == [
        (("worker", 1), 30),
        (("worker", 0), 20),
    ]
    assert len(news) == 2
    assert await following.evidence(None) == known
    following.on_persisted(known)
    following.on_progress({InstanceKey("worker", 1): report(30)})
    assert await following.evidence(None) == Evidence()


async def test_a_failed_job_is_explained_though_its_instance_is_not_known_any_more(stage):
    cause = RootCause(
        id="disk-full",
        category="storage",
        retryable="no",
        confidence=0.9,
        evidence="No space left on device",
        advice="",
        role="worker",
        index=0,
    )
    entry = JobEntry(state="Failed", reason=MAX_RESTARTS_EXCEEDED, root_cause=cause)
    follower = FailureFollower(replace(a_run(checkpoint=None), runtime=stage.runtime))
    decision = Decision(new_ledger=Ledger(job=entry), done=True)
    explained = await follower.explain(decision, now=1.0)
    assert explained.new_ledger.job.root_cause == cause

"""What the planner's verdict on a run rests on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.admission.plan.history import NO_HISTORY, History
from airflow_training.admission.plan.replan import (
    ReplanInput,
    ReplanVerdict,
    replan_run,
    steps_at_risk,
)
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import (
    ResolvedCheckpoint,
    SaveEverySeconds,
    SaveEverySteps,
)
from airflow_training.runtimes.port import ClusterSnapshot
from tests.supervise.replanning.lab import FAR


def after_change(
    job: ResolvedJob, *, history: History = NO_HISTORY, **situation: Any
) -> ReplanVerdict:
    assert job.plan is not None
    return replan_run(
        ReplanInput(job=job, machines=ClusterSnapshot(nodes=()), **situation),
        before=job.plan.cluster_view,
        history=history,
    )


def test_a_slow_link_is_a_change_like_any_other(lab):
    job = lab.job()
    lab.has(3, nic_gbit_s=0.2)
    verdict = after_change(job, total_steps=FAR)
    assert verdict.message.startswith("gpus's network: slower")


def test_a_gang_that_could_not_start_at_the_new_size_is_refused(lab):
    policy = {"gang": "volcano", "minAvailable": 3}
    job = lab.job(
        spec={
            "roles": [{"name": "worker", "replicas": 3}],
            "schedulingPolicy": policy,
            "runtime": {"name": "kubernetes"},
            "image": "train",
        }
    )
    lab.has(2)
    verdict = after_change(job)
    assert verdict.reason == "ReplanFailed"
    assert "minAvailable" in verdict.message


@pytest.mark.parametrize(
    ("checkpoint", "expected"),
    [
        pytest.param(None, 1000, id="none-all-is-lost"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySteps(50)), 50, id="by-steps"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySteps(5000)), 1000, id="none-written-yet"),
        pytest.param(ResolvedCheckpoint(every=SaveEverySeconds(60)), 121, id="by-time"),
        pytest.param(ResolvedCheckpoint(every="auto"), 1000, id="auto"),
    ],
)
def test_steps_that_are_run_again(checkpoint, expected):
    assert steps_at_risk(checkpoint, step=1000, step_seconds=0.5) == expected


def test_a_job_keeps_what_the_user_and_the_framework_gave_it(lab):
    """The plan's variables and files are exchanged, nothing else is touched."""
    job = lab.job(apply=["replicas", "env", "microBatch"])
    lab.has(2)
    new = after_change(job).job
    assert new is not None
    before, after = job.role("worker"), new.role("worker")
    assert set(before.env) == set(after.env)
    assert [file.path for file in before.files] == [file.path for file in after.files]
    assert (before.env["DP_SIZE"], after.env["DP_SIZE"]) == ("3", "2")
    kept: Callable[[ResolvedJob], Any] = lambda of: replace(of, roles=(), plan=None)  # noqa: E731
    assert kept(new) == kept(job)

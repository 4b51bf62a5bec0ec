"""Which runs are planned again, and what hinders it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_training.admission.plan.follow import adaptive_plan
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.admission.plan.replan import ReplanInput, replan_run
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.planning.sources.documents import parse_model
from airflow_training.planning.view.serial import pack_view, unpack_view
from airflow_training.planning.view.transformer import computation
from airflow_training.runtimes.port import ClusterSnapshot
from tests.supervise.replanning.lab import GPT, Lab

TINY = {"hidden": 64, "layers": 4, "heads": 4, "seq": 64, "vocab": 512}


@pytest.mark.parametrize(
    ("plan", "follows"),
    [
        pytest.param({}, True, id="by-default"),
        pytest.param({"replan": "Never"}, False, id="never"),
        pytest.param({"apply": []}, False, id="only-shown"),
        pytest.param({"apply": ["env"]}, True, id="only-the-split"),
        pytest.param({"cluster": "request", "model": TINY}, False, id="the-jobs-own-request"),
        pytest.param({"cluster": {"name": "c", "nodes": [{"count": 1, "device": "A100-SXM4-80GB",
                     "devices_per_node": 1, "nic_gbit_s": 100}]}}, False, id="written-down"),
    ],
)  # fmt: skip
def test_which_plans_follow_their_cluster(lab, plan, follows):
    assert (adaptive_plan(lab.job(**plan)) is not None) == follows


def test_a_job_without_a_plan_is_left_alone(lab):
    assert adaptive_plan(replace(lab.job(), plan=None)) is None


def python_job(lab: Lab, *, traced: str) -> ResolvedJob:
    """Return a job whose model is a function that nobody may call."""
    (lab.folder / "model.py").write_text("raise AssertionError('the loop runs no Python of users')")
    job = lab.job()
    plan = {**job.document["spec"]["plan"], "model": "model:example"}
    document = {**job.document, "spec": {**job.document["spec"], "plan": plan}}
    assert job.plan is not None
    return replace(job, document=document, plan=replace(job.plan, traced=traced))


def test_a_model_that_is_python_is_planned_again_by_the_view_that_was_traced_of_it(lab):
    """The loop runs no Python of users: what was traced at the start is kept with the plan."""
    view = computation(parse_model(GPT))
    job = python_job(lab, traced=pack_view(view))
    assert adaptive_plan(job) is not None
    lab.has(2)
    situation = ReplanInput(job=job, machines=ClusterSnapshot(nodes=()))
    verdict = replan_run(situation, before=job.plan.cluster_view, history=NO_HISTORY)
    assert verdict.job is not None, verdict.message
    assert verdict.job.role("worker").replicas == 2
    assert unpack_view(verdict.job.plan.traced) == view, "and kept for the next time"
    assert "traced" not in verdict.job.plan.document, "nobody has to read it"


def test_one_that_an_older_version_planned_keeps_its_split(lab):
    assert adaptive_plan(python_job(lab, traced="")) is None


def test_a_kueue_group_keeps_its_size(lab):
    job = lab.job()
    scheduling = replace(job.scheduling, gang="kueue", keeps_size=True)
    assert adaptive_plan(replace(job, scheduling=scheduling)) is None


def test_who_asks_for_what_cannot_be_is_told(lab):
    said = {each.field: each for each in lab.check(replan="OnChange", apply=[]).warnings}
    assert "nothing of the plan is applied" in said["spec.plan.replan"].message
    assert not lab.check(apply=[]).warnings, "nobody asked"
    assert not lab.check(replan="OnChange").warnings

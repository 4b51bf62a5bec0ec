"""Which runs are planned again, and what hinders it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.plan.follow import adaptive_plan

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


def test_python_of_the_user_is_not_run_by_the_loop(lab):
    job = lab.job()
    plan = {**job.document["spec"]["plan"], "model": "train:model"}
    document = {**job.document, "spec": {**job.document["spec"], "plan": plan}}
    assert adaptive_plan(replace(job, document=document)) is None


def test_a_kueue_group_keeps_its_size(lab):
    job = lab.job()
    scheduling = replace(job.scheduling, gang="kueue", keeps_size=True)
    assert adaptive_plan(replace(job, scheduling=scheduling)) is None


def test_who_asks_for_what_cannot_be_is_told(lab):
    said = {each.field: each for each in lab.check(replan="OnChange", apply=[]).warnings}
    assert "nothing of the plan is applied" in said["spec.plan.replan"].message
    assert not lab.check(apply=[]).warnings, "nobody asked"
    assert not lab.check(replan="OnChange").warnings


def test_python_as_model_is_told_though_nobody_asked(lab):
    def warned(**plan: Any) -> list[str]:
        document = {**lab.job().document}
        document["spec"] = {
            **document["spec"],
            "plan": {"model": "train:example", "globalBatch": 12, **plan},
        }
        [checked] = check_text(yaml.safe_dump(document))  # as `validate` does: nothing is planned
        assert not checked.problems
        return [str(each) for each in checked.warnings if each.field == "spec.plan.replan"]

    [said] = warned()
    assert "has no effect: its model is Python" in said
    assert "replan: Never" in said
    assert not warned(replan="Never")
    assert not warned(cluster="request"), "that does not change, and says so itself"

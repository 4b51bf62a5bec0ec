"""A job that trains a network is planned for that network; nothing runs, and `spec.plan` names no model."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import check_text
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.admission.plan.network_model import DATA_ONLY, with_network
from airflow_training.admission.plan.step import make_plan_request
from airflow_training.documents.parsing import TrainingJob
from airflow_training.runtimes.port import ClusterSnapshot
from tests.networks.trainer.test_admission import JOB

CLUSTER = {
    "nodes": [{"name": "n", "count": 4, "device": "CPU-8", "devices_per_node": 1, "nic_gbit_s": 10}]
}


def planned(**plan: Any) -> Any:
    job = copy.deepcopy(JOB)
    job["spec"]["plan"] = {"globalBatch": 96, "cluster": CLUSTER, **plan}
    (answer,) = check_text(yaml.safe_dump(job, sort_keys=False))
    return answer


def test_the_network_that_is_trained_is_the_model_of_the_plan():
    answer = planned()
    assert list(answer.problems) == []
    job = with_network(
        TrainingJob.model_validate(answer.resolved.document), answer.resolved.trainer
    )
    question = make_plan_request(
        job, answer.resolved, nodes=lambda _: pytest.fail("asked for nodes"), history=NO_HISTORY
    )
    view = question.workload.view
    assert view.name == "net"
    assert [name for name, each in view.tensors.items() if each.kind == "parameter"] == [
        "logits.weight",
        "logits.bias",
    ]


def test_a_split_of_the_network_is_refused_and_none_is_searched():
    answer = planned(constraints={"tp": 2, "zero": 3, "dp": 2})
    assert [each.field for each in answer.problems] == [
        "spec.plan.constraints.tp",
        "spec.plan.constraints.zero",
    ]
    answer = planned()
    job = with_network(answer.job, answer.resolved.trainer)
    question = make_plan_request(
        job, answer.resolved, nodes=lambda _: ClusterSnapshot(nodes=()), history=NO_HISTORY
    )
    assert {
        axis: rule.pinned for axis, rule in question.constraints.rules.items() if axis in DATA_ONLY
    } == DATA_ONLY


def test_a_model_that_is_named_wins():
    text = {"hidden": 8, "layers": 2, "heads": 2, "seq": 8, "vocab": 16}
    answer = planned(model=text)
    job = with_network(answer.job, answer.resolved.trainer)
    assert job.spec.plan.model == text


def test_without_a_plan_nothing_is_planned():
    (answer,) = check_text(yaml.safe_dump(JOB, sort_keys=False))
    assert answer.job.spec.plan.model is None


def test_without_a_trainer_a_model_is_required():
    job = copy.deepcopy(JOB)
    del job["spec"]["trainer"]
    job["spec"] |= {
        "framework": "pytorch", "command": ["python", "x.py"], "plan": {"globalBatch": 8},
    }  # fmt: skip
    (answer,) = check_text(yaml.safe_dump(job, sort_keys=False))
    assert "spec.plan.model" in {each.field for each in answer.problems}

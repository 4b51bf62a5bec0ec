"""A job that trains a network is planned for that network; nothing runs, and `spec.plan` names no model."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.admission.check import AdmissionResponse, check_text
from airflow_training.admission.plan.history import NO_HISTORY
from airflow_training.admission.plan.job_plan import JobPlan
from airflow_training.admission.plan.network_model import DATA_ONLY, with_network
from airflow_training.admission.plan.step import make_plan_request, plan_job
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import ClusterSnapshot
from tests.networks.trainer.made import LISTS, TABLE, network_document
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


ENGINE = ["replicas", "env", "microBatch", "engine"]
WIDE: list[dict[str, Any]] = [
    *TABLE[:2],
    {"name": "dense", "type": "Linear", "inputs": ["x"], "params": {"out_features": 8}},
    {"name": "act", "type": "ReLU"},
    {"name": "logits", "type": "Linear", "params": {"out_features": 2}},
    *TABLE[3:],
]
NORMED: list[dict[str, Any]] = [
    *WIDE[:2],
    {"name": "scaled", "type": "BatchNorm1d", "inputs": ["x"]},
    {**WIDE[2], "inputs": ["scaled"]},
    *WIDE[3:],
]


def split(
    layers: Any = TABLE,
    trainer: dict[str, Any] | None = None,
    *,
    plans: bool = True,
    **plan: Any,
) -> AdmissionResponse:
    """Check a job of four instances whose trainer follows its plan, and plan it."""
    job = copy.deepcopy(JOB)
    job["spec"]["roles"][1]["replicas"] = 3
    job["spec"]["trainer"] |= {"network": {"document": network_document(layers)}, **(trainer or {})}
    job["spec"]["plan"] = {"globalBatch": 96, "cluster": CLUSTER, "apply": ENGINE, **plan}

    def planner(job: TrainingJob, resolved: ResolvedJob) -> JobPlan:
        return plan_job(job, resolved, runtime=lambda _: MemoryRuntime(), history=NO_HISTORY)

    text = yaml.safe_dump(job, sort_keys=False)
    (answer,) = check_text(text, planner=planner if plans else None, run_uid="x" * 20)
    return answer


def test_a_split_that_the_trainer_carries_out_reaches_its_ranks():
    answer = split(WIDE, constraints={"tp": 2, "devices": 4})
    assert list(answer.problems) == []
    role = answer.resolved.role("worker")
    files = {
        Path(each.path).name: json.loads(each.content)
        for each in role.files
        if "json" in each.path and "deepspeed" not in each.path
    }
    assert files["trainer.json"]["byPlan"] is True
    assert files["trainer.json"]["batchSize"] == 96
    strategy = files["plan.json"]["strategy"]
    assert (strategy["tp"], strategy["tp"] * strategy["pp"] * strategy["dp"]) == (2, 4)
    assert "engine" not in files["plan.json"]
    assert role.env["PLAN_FILE"].endswith("plan.json")
    (container,) = role.template["spec"]["containers"]
    assert container["command"] == ["python", "-m", "airflow_training.networks.trainer"]


@pytest.mark.parametrize(
    ("trainer", "plan", "field"),
    [
        ({"batchSize": 8}, {}, "trainer.batchSize"),
        ({"updateInterval": 2}, {}, "trainer.updateInterval"),
        ({"fromParams": {"batchSize": "n"}}, {}, "trainer.fromParams.batchSize"),
        ({}, {"engine": {"epochs": 3}}, "plan.engine"),
        ({}, {"model": "train:example"}, "plan.model"),
        ({}, {"model": {"hidden": 8, "layers": 2, "heads": 2, "seq": 8, "vocab": 16}}, "plan.model"),
        ({}, {"model": network_document(WIDE)}, "plan.model"),
        ({}, {"constraints": {"cp": 2}}, "plan.constraints.cp"),
        ({}, {"constraints": {"ep": 2}}, "plan.constraints.ep"),
        ({}, {"apply": ["engine", "replicas"]}, "plan.apply"),
        ({}, {"precision": "fp8"}, "plan.precision"),
    ],
)  # fmt: skip
def test_what_has_no_meaning_with_a_split_is_a_mistake(trainer, plan, field):
    assert f"spec.{field}" in {each.field for each in split(trainer=trainer, **plan).problems}


def test_a_layer_that_a_plan_cannot_split_is_passed_over_or_named():
    two = {"min": 2, "max": 2}
    answer = split(NORMED, constraints={"devices": 4, "dp": two, "pp": two})
    (problem,) = answer.problems
    assert problem.field == "spec.plan.apply"
    assert "layer 'scaled' (BatchNorm1d) needs the whole micro-batch" in problem.message
    assert list(split(NORMED, constraints={"devices": 4, "dp": 4}).problems) == []
    (pinned,) = split(NORMED, plans=False, constraints={"dp": 2, "pp": 2}).problems
    assert pinned.message in problem.message
    assert list(split(NORMED, plans=False, constraints={"pp": 2}).problems) == []


def test_a_plan_may_name_the_network_of_the_trainer():
    assert list(split(model=network_document(TABLE)).problems) == []


@pytest.mark.parametrize("plans", [True, False])
def test_two_samples_for_a_norm_are_asked_for_where_a_plan_pins_both_numbers(plans):
    assert (
        list(split(NORMED, plans=plans, constraints={"devices": 4, "microBatch": 1}).problems) == []
    )
    assert list(split(NORMED, plans=plans, constraints={"microBatch": 1, "dp": 4}).problems) == []
    (problem,) = split(
        NORMED, plans=plans, constraints={"microBatch": 1, "dp": 1, "pp": 4}
    ).problems
    assert problem.field == "spec.plan.constraints"
    assert "layer 'scaled' (BatchNorm1d) needs two samples at once" in problem.message


@pytest.mark.parametrize("axis", ["dp", "pp", "microBatch", "recompute"])
@pytest.mark.parametrize("plans", [True, False])
def test_a_constraint_that_is_no_value_of_its_part_is_named(axis, plans):
    fields = {each.field for each in split(NORMED, plans=plans, constraints={axis: "two"}).problems}
    assert len(fields) == 1
    assert fields.pop().startswith("spec.plan.constraints.")


RANKED: list[dict[str, Any]] = [
    *LISTS[:2],
    {**WIDE[2], "name": "wide"},
    {**LISTS[2], "inputs": ["wide"]},
    LISTS[3],
    {"name": "loss", "type": "PairwiseRankingLoss", "inputs": ["scores", "y"]},
]
LIKELY: list[dict[str, Any]] = [
    {"name": "x", "type": "Input", "params": {"shape": [2]}},
    {"name": "y", "type": "Input", "params": {"shape": [2]}},
    {"name": "dense", "type": "Linear", "inputs": ["x"], "params": {"out_features": 2}},
    {"name": "odds", "type": "Sigmoid"},
    {"name": "loss", "type": "BCELoss", "inputs": ["odds", "y"]},
]
LIKELY_DATA = {"data": {"format": "csv", "inputs": {"x": ["a", "b"], "y": ["c", "d"]}}}


@pytest.mark.parametrize("plans", [True, False])
@pytest.mark.parametrize("pinned", [{"dp": 4}, {"microBatch": 24}])
def test_a_mean_over_pairs_is_not_cut(plans, pinned):
    data = {"data": {"format": "libsvm"}}
    (problem,) = split(RANKED, data, plans=plans, constraints=pinned).problems
    assert problem.field == "spec.plan.constraints"
    assert "layer 'loss' (PairwiseRankingLoss) is a mean over pairs" in problem.message
    whole = {"dp": 1, "tp": 4, "microBatch": 96}
    assert list(split(RANKED, data, plans=plans, constraints=whole).problems) == []


@pytest.mark.parametrize("plans", [True, False])
@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_loss_that_torch_refuses_in_a_precision_is_named(plans, precision):
    (problem,) = split(LIKELY, LIKELY_DATA, plans=plans, precision=precision).problems
    assert problem.field == "spec.plan.precision"
    assert f"layer 'loss' (BCELoss) is not safe in {precision}" in problem.message
    assert list(split(LIKELY, LIKELY_DATA, plans=plans).problems) == []


@pytest.mark.parametrize(("given", "expected"), [({}, "fp32"), ({"precision": "bf16"}, "bf16")])
def test_a_split_computes_as_the_trainer_without_a_plan_unless_told(given, expected):
    gpus = {"nodes": [{"count": 1, "device": "A100-SXM4-80GB", "devices_per_node": 4}]}
    answer = split(WIDE, cluster=gpus, constraints={"devices": 4}, **given)
    assert list(answer.problems) == []
    (text,) = [
        each.content
        for each in answer.resolved.role("worker").files
        if each.path.endswith("plan.json")
    ]
    assert json.loads(text)["strategy"]["precision"] == expected


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

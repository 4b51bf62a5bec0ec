"""A plan's file is read whole or refused, with every mistake named."""

from __future__ import annotations

import json

import pytest
import torch

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan, check_world, plan_of, read_plan
from airflow_training.execution.microbatches import (
    check_rows,
    check_tensors,
    micro_batch_rows,
    split_batch,
    take_rows,
)
from airflow_training.planning.answers.report import strategy_document
from airflow_training.planning.view.strategy import Strategy


def fields_of(document):
    with pytest.raises(InputError) as caught:
        plan_of(document)
    return sorted(problem.field for problem in caught.value.problems)


def test_what_the_planner_writes_is_read(tmp_path):
    strategy = Strategy(
        global_batch=32,
        micro_batch=2,
        tp=2,
        pp=2,
        dp=2,
        zero=1,
        stage_layers=(3, 1),
        precision="fp32",
    )
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"strategy": strategy_document(strategy), "devices": 8}))
    plan = read_plan(file)
    assert plan == ExecutionPlan(
        global_batch=32, micro_batch=2, tp=2, pp=2, dp=2, zero=1, stage_layers=(3, 1)
    )
    assert (plan.devices, plan.stages, plan.micro_batches) == (8, 2, 8)


def test_all_mistakes_are_named_at_once():
    wrong = {"micro_batch": 0, "zero": 4, "schedule": "1f2b", "tp": True, "stage_layers": [1, "2"]}
    assert fields_of({"strategy": wrong}) == [
        "strategy.global_batch",
        "strategy.micro_batch",
        "strategy.schedule",
        "strategy.stage_layers",
        "strategy.tp",
        "strategy.zero",
    ]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"dp": 3}, "strategy.global_batch"),
        ({"virtual_stages": 2}, "strategy.virtual_stages"),
        ({"pp": 2, "stage_layers": [1, 2, 3]}, "strategy.stage_layers"),
        ({"pp": 2, "schedule": "zero-bubble", "recompute": "full"}, "strategy.recompute"),
        ({"cp": 2}, "strategy.cp"),
        ({"precision": "fp8"}, "strategy.precision"),
        ({"global_batch": 10, "pp": 2, "virtual_stages": 2}, "strategy.micro_batch"),
        ({"ep": 2}, "strategy.ep"),
    ],
)
def test_what_contradicts_itself_or_is_not_carried_out_is_refused(changes, field):
    assert fields_of({"strategy": {"global_batch": 8, "micro_batch": 2, **changes}}) == [field]


def test_a_file_that_is_no_plan_is_refused_by_its_path(tmp_path):
    file = tmp_path / "plan.json"
    file.write_text("[")
    with pytest.raises(InputError, match=r"plan\.json"):
        read_plan(file)
    assert fields_of({"strategies": {}}) == ["strategy"]


def test_another_number_of_ranks_is_refused_with_both_numbers():
    plan = ExecutionPlan(global_batch=8, micro_batch=1, tp=2, dp=2)
    check_world(plan, 4)
    with pytest.raises(InputError, match=r"for 4 ranks .* 3 were started"):
        check_world(plan, 3)


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "1F1B"),
        ({"schedule": "gpipe"}, "GPipe"),
        ({"virtual_stages": 2}, "Interleaved1F1B"),
        ({"schedule": "zero-bubble"}, "InterleavedZeroBubble"),
        ({"micro_batch": 8}, "GPipe"),
    ],
)
def test_the_schedule_is_named_as_torch_names_it(changes, name):
    given = {"global_batch": 8, "micro_batch": 2, "pp": 2} | changes
    assert ExecutionPlan(**given).torch_schedule == name


def test_replicas_share_each_micro_batch():
    plan = ExecutionPlan(global_batch=12, micro_batch=2, dp=2)
    rows = [[list(range(12))[part] for part in micro_batch_rows(plan, each)] for each in (0, 1)]
    assert rows == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [10, 11]]]


def test_a_batch_that_is_no_pair_is_refused():
    assert split_batch(((1, 2), 3)) == ((1, 2), 3)
    assert split_batch([1, 3]) == ((1,), 3)
    with pytest.raises(InputError, match="pair of inputs and target"):
        split_batch((1, 2, 3))


@pytest.mark.parametrize(
    ("inputs", "target", "field"),
    [
        (
            ({"words": torch.ones(8, 2), "mask": torch.ones(2, 2)},),
            torch.ones(8),
            "inputs[0]['mask']",
        ),
        ((torch.ones(8, 2), torch.tensor(1.0)), torch.ones(8), "inputs[1]"),
        ((torch.ones(8, 2),), torch.ones(4), "target"),
        ((torch.ones(8, 2),), torch.tensor([0, 1, 2, -100, 0, 1, 2, 3]), "target"),
    ],
)
def test_tensors_that_replicas_cannot_share_evenly_are_refused_by_name(inputs, target, field):
    plan = ExecutionPlan(global_batch=8, micro_batch=2, dp=2)
    with pytest.raises(InputError) as caught:
        check_rows(plan, inputs, target)
    assert [problem.field for problem in caught.value.problems] == [field]


def test_targets_that_every_replica_leaves_out_alike_are_taken():
    plan = ExecutionPlan(global_batch=8, micro_batch=2, dp=2)
    check_rows(plan, (torch.ones(8, 2), None), torch.tensor([0, -100, -100, 2, 0, 1, 2, 3]))


def test_rows_are_taken_of_tensors_inside_a_mapping():
    (found,) = take_rows(({"words": torch.arange(8), "flag": True},), slice(2, 4))
    assert found["words"].tolist() == [2, 3]
    assert found["flag"] is True


def test_a_pipeline_refuses_inputs_that_are_no_tensors():
    with pytest.raises(InputError, match=r"batch\[1\]: dict is no tensor"):
        check_tensors((torch.ones(2), {"mask": torch.ones(2)}))

"""What cannot be equal under a split is refused by the module's name, before anything starts."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from airflow_training.execution.screening import screen_module

REPLICAS = ExecutionPlan(global_batch=8, micro_batch=4, dp=2)
STAGES = ExecutionPlan(global_batch=8, micro_batch=4, dp=2, pp=2)


def refused(module, plan, *, width=4):
    with pytest.raises(InputError) as caught:
        screen_module(module.train(), (torch.randn(4, width),), plan)
    return {problem.field: problem.message for problem in caught.value.problems}


def test_random_numbers_are_refused_where_they_are_drawn():
    module = nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Dropout(0.5)), nn.Dropout(0.0))
    found = refused(module, REPLICAS)
    assert list(found) == ["1.0"]
    assert found["1.0"].startswith("Dropout draws random numbers")


def test_a_batch_norm_on_replicas_of_stages_is_refused_and_on_replicas_alone_it_is_not():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4))
    screen_module(module, (torch.randn(4, 4),), REPLICAS)
    assert list(refused(module, STAGES)) == ["1"]
    assert torch.equal(module[1].running_mean, torch.zeros(4))  # the module itself did not run


class Centre(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_a_module_of_the_users_own_that_mixes_samples_is_refused():
    module = nn.Sequential(nn.Linear(4, 4), Centre())
    found = refused(module, REPLICAS)
    assert list(found) == ["1"]
    assert found["1"].startswith("Centre gives other results for a part of a batch")


def test_samples_that_are_treated_one_by_one_are_not_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GroupNorm(2, 4), nn.GELU())
    screen_module(module, (torch.randn(4, 4),), STAGES)


def test_ranks_without_a_plan_are_refused(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("PLAN_FILE", raising=False)
    module = nn.Linear(4, 4)
    with pytest.raises(InputError, match="2 ranks were started, and no plan"):
        distribute(module, loss=nn.MSELoss(), optimizer=torch.optim.SGD, example=(1, 2))


@pytest.mark.e2e
def test_a_batch_of_another_size_than_the_plans_is_refused():
    plan = ExecutionPlan(global_batch=8, micro_batch=4)
    example = torch.ones(4, 4), torch.ones(4, 4)
    training = distribute(
        nn.Linear(4, 4), loss=nn.MSELoss(), optimizer=torch.optim.SGD, example=example, plan=plan
    )
    with pytest.raises(InputError, match="4 samples, and a step of the plan has 8"):
        training.step(example)

"""What cannot be equal under a split is refused by the module's name, before anything starts."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from airflow_training.errors import InputError
from airflow_training.execution import ExecutionPlan, distribute
from airflow_training.execution.screening import screen_loss, screen_module

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
    assert torch.equal(
        module.get_buffer("1.running_mean"), torch.zeros(4)
    )  # the module itself did not run


class Centre(nn.Module):
    def forward(self, x):
        return x - x.mean(0)


def test_a_module_of_the_users_own_that_mixes_samples_is_refused():
    module = nn.Sequential(nn.Linear(4, 4), Centre())
    found = refused(module, REPLICAS)
    assert list(found) == ["1"]
    assert found["1"].startswith("Centre gives other results for a part of a batch")


class RoundsByTheBatch(nn.Module):
    """As kernels of a GPU that compute in tf32: others are taken for a part of a batch."""

    def forward(self, x):
        shorter = torch.backends.cuda.matmul.allow_tf32 or torch.backends.cudnn.allow_tf32
        return x * (1 + 1e-3 * len(x)) if shorter else x


@pytest.fixture
def tf32():
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, torch.backends.cudnn)
    kept = [place.allow_tf32 for place in places]
    for place in places:
        place.allow_tf32 = True
    yield
    for place, allowed in zip(places, kept, strict=True):
        place.allow_tf32 = allowed


@pytest.mark.usefixtures("tf32")
def test_what_is_rounded_to_tf32_is_compared_in_fp32():
    module = nn.Sequential(nn.Linear(4, 4), RoundsByTheBatch())
    screen_module(module, (torch.randn(4, 4),), REPLICAS)
    screen_loss(module, (torch.randn(4, 4),), torch.randn(4, 4), nn.functional.mse_loss, REPLICAS)
    assert torch.backends.cuda.matmul.allow_tf32
    assert torch.backends.cudnn.allow_tf32


def test_what_mixes_samples_behind_a_batch_norm_is_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), Centre())
    assert list(refused(module, REPLICAS)) == ["2"]


class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.last = nn.Linear(4, 4)

    def forward(self, x):
        return {"logits": self.last(self.first(x) - self.first(x).mean(0))}


def test_the_module_around_is_named_where_its_own_code_mixes_samples():
    assert list(refused(nn.Sequential(nn.Linear(4, 4), Mixer()), REPLICAS)) == ["1"]
    assert list(refused(Mixer(), REPLICAS)) == ["module"]


class BatchNormLike(Centre):
    pass


def test_a_class_that_is_only_called_like_a_batch_norm_is_refused():
    assert list(refused(nn.Sequential(nn.Linear(4, 4), BatchNormLike()), REPLICAS)) == ["1"]


class Follower(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.mean: torch.Tensor

    def forward(self, x):
        self.mean.lerp_(x.detach().mean(0).square(), 0.1)
        return x


def test_a_buffer_that_follows_the_batch_is_refused():
    assert list(refused(nn.Sequential(nn.Linear(4, 4), Follower()), REPLICAS)) == ["1"]


def test_buffers_that_recomputation_would_change_twice_are_refused():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    plan = ExecutionPlan(global_batch=8, micro_batch=4, recompute="full")
    assert list(refused(module, plan)) == ["1"]
    assert list(refused(nn.Sequential(nn.Linear(4, 4), Follower()), plan)) == ["1"]


def make_training(**given):
    """Distribute a small module without a split, over two micro-batches."""
    parts = {
        "model": nn.Linear(4, 4),
        "loss": nn.MSELoss(),
        "optimizer": torch.optim.SGD,
        "example": (torch.randn(8, 4), torch.randn(8, 4)),
        "plan": ExecutionPlan(global_batch=8, micro_batch=4),
    }
    parts.update(given)
    return distribute(parts.pop("model"), **parts)


@pytest.mark.parametrize(
    "loss",
    [nn.MSELoss(reduction="sum"), lambda output, target: ((output - target) * 2).mean() ** 2],
)
def test_a_loss_that_is_no_mean_over_samples_is_refused(loss):
    inputs = torch.randn(4, 4)
    with pytest.raises(InputError, match="mean of its halves"):
        screen_loss(nn.Linear(4, 4), (inputs,), inputs, loss, REPLICAS)
    screen_loss(nn.Linear(4, 4), (inputs,), inputs, nn.MSELoss(), REPLICAS)


class Centres(nn.Module):
    def __init__(self):
        super().__init__()
        self.centres = nn.Parameter(torch.zeros(4))

    def forward(self, output, target):
        return (output - target - self.centres).square().mean()


def test_a_loss_with_parameters_of_its_own_is_refused():
    with pytest.raises(InputError, match="Centres has parameters of its own"):
        make_training(loss=Centres())


def test_an_optimizer_of_other_parameters_than_it_was_given_is_refused():
    others = nn.Linear(4, 4)
    with pytest.raises(InputError, match="2 of its parameters are not among the 2"):
        make_training(optimizer=lambda _: torch.optim.SGD(others.parameters()))


def test_an_error_of_the_modules_own_is_not_blamed_on_a_split():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        make_training(model=nn.Linear(3, 4))


def test_a_module_stays_in_the_mode_it_is_in():
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4).eval())
    make_training(model=module)
    assert [each.training for each in module] == [True, False]


def test_an_optimizer_may_look_at_its_parameters_twice(monkeypatch):
    monkeypatch.delenv("PLAN_FILE", raising=False)

    def make(parameters):
        wide = [each for each in parameters if each.dim() > 1]
        return torch.optim.SGD(
            [{"params": wide}, {"params": [each for each in parameters if each.dim() == 1]}]
        )

    training = make_training(optimizer=make, plan=None)
    assert [len(group["params"]) for group in training.optimizer.param_groups] == [1, 1]


@pytest.mark.e2e
def test_torch_is_imported_only_where_something_is_used():
    code = "import sys, airflow_training.execution as x; print('torch' in sys.modules, x.__all__)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.startswith("False ")


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


def test_a_precision_that_the_user_set_by_the_newer_name_is_no_crash():
    cudnn: Any = torch.backends.cudnn
    places: tuple[Any, ...] = (torch.backends.cuda.matmul, cudnn.conv)
    if not hasattr(places[0], "fp32_precision"):
        pytest.skip("this torch has the older name only")
    kept = [place.fp32_precision for place in places]
    places[0].fp32_precision = "tf32"
    try:
        screen_module(nn.Sequential(nn.Linear(4, 4)), (torch.randn(4, 4),), REPLICAS)
        assert places[0].fp32_precision == "tf32"
    finally:
        for place, value in zip(places, kept, strict=True):
            place.fp32_precision = value

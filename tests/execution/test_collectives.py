"""What ranks of a split exchange in a step."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import call_ranks
from tests.execution.zoo import LENGTH, WIDTH, FusedAttention

pytestmark = pytest.mark.e2e

BLOCKS = 3


class Block(torch.nn.Module):
    """The feed-forward half of a transformer's layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.LayerNorm(8)
        self.up = torch.nn.Linear(8, 32)
        self.down = torch.nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deeper: torch.Tensor = x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))
        return deeper


def count_sums() -> int:
    """Return how many sums over ranks one step of a residual model takes."""
    torch.manual_seed(0)
    batch = torch.randn(2, 4, 8), torch.randn(2, 4, 8)
    training = distribute(
        torch.nn.Sequential(*(Block() for _ in range(BLOCKS))),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        training.step(batch)
    return sum(event.name == "_c10d_functional::all_reduce" for event in seen.events() or ())


def count_exchanges() -> dict[str, int]:
    """Return what one step of attention whose three projections are one exchanges beside its sums."""
    torch.manual_seed(0)
    batch = torch.randn(2, LENGTH, WIDTH), torch.randn(2, LENGTH, WIDTH)
    training = distribute(
        torch.nn.Sequential(*(FusedAttention() for _ in range(BLOCKS))),
        loss=torch.nn.functional.mse_loss,
        optimizer=lambda own: torch.optim.SGD(own, lr=0.1),
        example=batch,
        plan=ExecutionPlan(global_batch=2, micro_batch=2, tp=2),
    )
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        training.step(batch)
    names = [event.name.partition("::")[2] for event in seen.events() or ()]
    return {name: names.count(name) for name in ("all_to_all_single", "all_gather_into_tensor")}


def test_a_fused_projection_is_parted_and_never_gathered():
    """One exchange in each direction for queries, keys and values, and one for the halves of the layer after."""
    expected = {"all_to_all_single": 4 * BLOCKS, "all_gather_into_tensor": 0}
    assert call_ranks(2, count_exchanges) == [expected] * 2


def test_a_residual_is_summed_once_in_each_direction():
    """As Megatron's layers do (Shoeybi et al. 2019, arXiv:1909.08053): one sum forward, one backward."""
    assert call_ranks(2, count_sums) == [2 * BLOCKS] * 2

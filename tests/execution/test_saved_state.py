"""A checkpoint of one split is gone on from in another, as if there had been no break."""

from __future__ import annotations

import pytest
import torch

from airflow_training.checkpoints import CheckpointError
from airflow_training.execution import ExecutionPlan, distribute
from tests.execution.ranks import by_hand, call_ranks, distance, make, make_optimizer
from tests.execution.zoo import BATCH, ZOO, cross_entropy

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]


def go_on(root, plan, steps):
    """Restore, train up to `steps`, save; return where it began, losses, and the whole tensors."""
    training = distribute(
        make("gpt"),
        loss=cross_entropy,
        optimizer=make_optimizer(plan.precision),
        example=ZOO["gpt"].batch(0),
        plan=plan,
        root=root,
        every={"steps": 1000},
    )
    start = training.restore()
    losses = [training.step(ZOO["gpt"].batch(step)) for step in range(start, steps)]
    training.save()
    training.close()
    whole = {name: tensor.numpy() for name, tensor in training.gather().items()}
    return start, torch.stack(losses).numpy(), whole


def test_what_four_ranks_saved_two_ranks_go_on_from_in_another_split(tmp_path):
    shape = {"global_batch": BATCH, "precision": "fp64"}
    first = ExecutionPlan(**shape, micro_batch=2, pp=2, dp=2, zero=1)
    second = ExecutionPlan(**shape, micro_batch=4, tp=2)
    start, before, _ = call_ranks(4, go_on, tmp_path / "root", first, 3)[0]
    assert start == 0
    start, after, tensors = call_ranks(2, go_on, tmp_path / "root", second, 5)[0]
    assert start == 3
    found = (
        torch.cat([torch.as_tensor(before), torch.as_tensor(after)]),
        {name: torch.as_tensor(tensor) for name, tensor in tensors.items()},
    )
    assert distance(found, by_hand("gpt", second)) < 1e-10


def train_serially(root, optimizer):
    training = distribute(
        make("mlp"),
        loss=cross_entropy,
        optimizer=optimizer,
        example=ZOO["mlp"].batch(0),
        plan=ExecutionPlan(global_batch=BATCH, micro_batch=BATCH),
        root=root,
        every={"steps": 1000},
    )
    training.restore()
    training.step(ZOO["mlp"].batch(0))
    training.save()
    training.close()


def test_a_checkpoint_of_an_optimizer_with_other_groups_is_refused(tmp_path):
    train_serially(tmp_path, torch.optim.SGD)
    with pytest.raises(CheckpointError, match="2 groups of parameters, the checkpoint 1"):
        train_serially(
            tmp_path,
            lambda given: torch.optim.SGD([{"params": given[:2]}, {"params": given[2:]}]),
        )

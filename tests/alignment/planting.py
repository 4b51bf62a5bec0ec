"""Ways to plant a fault into a training that `distribute` made, before it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate

from airflow_training.execution.training import DistributedTraining

Plant = Callable[[DistributedTraining], None]
Change = Callable[[Any], Any]


def nothing(_: DistributedTraining) -> None:
    return


def both(*plants: Plant) -> Plant:
    def plant(training: DistributedTraining) -> None:
        for each in plants:
            each(training)

    return plant


def _is_here(rank: int | None) -> bool:
    return rank is None or dist.get_rank() == rank


def _submodule(training: DistributedTraining, name: str) -> Any:
    """The module of that name where this rank has one: it may be on another stage."""
    found = [dict(module.named_modules()).get(name) for module in training.modules]
    return next((each for each in found if each is not None), None)


def change_output(name: str, change: Change, *, rank: int | None = None) -> Plant:
    def hook(_module: Any, _inputs: Any, output: Any) -> Any:
        if not isinstance(output, DTensor):
            return change(output) if _is_here(rank) else output
        whole = output.full_tensor()  # all ranks take part
        made = change(whole) if _is_here(rank) else whole
        return DTensor.from_local(made, output.device_mesh, [Replicate()], run_check=False)

    def plant(training: DistributedTraining) -> None:
        module = _submodule(training, name)
        if module is not None:
            module.register_forward_hook(hook)

    return plant


def keep_parts(name: str) -> Plant:
    """Take each tensor parallel rank's part of a sum for the sum."""

    def hook(_module: Any, _inputs: Any, output: Any) -> Any:
        local = output.to_local()
        return DTensor.from_local(local, output.device_mesh, [Replicate()], run_check=False)

    def plant(training: DistributedTraining) -> None:
        training.modules[0].get_submodule(name).register_forward_hook(hook)

    return plant


def change_weight(name: str, change: Change, *, rank: int | None = None) -> Plant:
    """Change the part of a parameter that a rank has."""

    def plant(training: DistributedTraining) -> None:
        tensor = dict(training.named_tensors()).get(name)
        if tensor is not None and _is_here(rank):
            local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
            with torch.no_grad():
                local.copy_(change(local.clone()))

    return plant


def nudge(value: torch.Tensor) -> torch.Tensor:
    value.view(-1)[0] += 1e-4
    return value


def change_gradient(names: Sequence[str], change: Change, *, rank: int | None = None) -> Plant:
    """Change gradients right before the update; of all parameters where `names` is empty."""

    def plant(training: DistributedTraining) -> None:
        held = [
            tensor
            for name, tensor in training.named_tensors()
            if (not names or name in names) and isinstance(tensor, torch.nn.Parameter)
        ]

        def before(*_: Any) -> None:
            for tensor in held:
                if tensor.grad is not None and _is_here(rank):
                    grad: Any = tensor.grad
                    local = grad.to_local() if isinstance(grad, DTensor) else grad
                    local.copy_(change(local.clone()))

        training.optimizer.register_step_pre_hook(before)

    return plant


def after_update(name: str, change: Callable[[Any, Any], Any], *, rank: int | None = None) -> Plant:
    """Replace a parameter after each update by what `change` makes of the old and the new one."""

    def plant(training: DistributedTraining) -> None:
        tensor: Any = dict(training.named_tensors()).get(name)
        if tensor is None or not _is_here(rank):
            return
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        before: list[Any] = []

        def keep(*_: Any) -> None:
            before[:] = [local.detach().clone()]

        def put(*_: Any) -> None:
            with torch.no_grad():
                local.copy_(change(before[0], local.detach().clone()))

        training.optimizer.register_step_pre_hook(keep)
        training.optimizer.register_step_post_hook(put)

    return plant


def change_groups(key: str, change: Change, *, rank: int | None = None) -> Plant:
    """Change a setting of the optimizer."""

    def plant(training: DistributedTraining) -> None:
        for group in training.optimizer.param_groups:
            if _is_here(rank):
                group[key] = change(group[key])

    return plant


def keep_gradients(training: DistributedTraining) -> None:
    """Leave the gradients of the step before where they are."""
    optimizer: Any = training.optimizer
    optimizer.zero_grad = lambda: None


def skip_exchange(training: DistributedTraining) -> None:
    """Let replicas keep their gradients to themselves."""
    for stage in training._stages:
        if hasattr(stage.run, "set_requires_gradient_sync"):
            stage.run.set_requires_gradient_sync(False)
            stage.run.set_requires_gradient_sync = lambda *_, **__: None
        else:
            stage.run.require_backward_grad_sync = False


def divide_by(factor: float) -> Plant:
    """Let `fully_shard` divide the sum of gradients by another number than that of the replicas."""

    def plant(training: DistributedTraining) -> None:
        for stage in training._stages:
            for module in stage.run.modules():
                if hasattr(module, "set_gradient_divide_factor"):
                    module.set_gradient_divide_factor(factor)

    return plant


def wrong_axis(name: str, axis: str) -> Plant:
    """Average a gradient over another axis of the mesh than that of the replicas."""

    def plant(training: DistributedTraining) -> None:
        assert training.mesh is not None
        group = training.mesh[axis].get_group()

        def average(grad: torch.Tensor) -> torch.Tensor:
            dist.all_reduce(grad, group=group)
            return grad / 2

        change_gradient([name], average)(training)

    return plant


def lose_replicas(training: DistributedTraining) -> None:
    """Report the loss of one replica for that of all."""
    training._replicas = None


def other_replica(training: DistributedTraining) -> None:
    """Take the samples of the other replica."""
    training._replica = 1 - training._replica


def shift_rows(training: DistributedTraining) -> None:
    """Let rank 1 take rows one too early."""
    if dist.get_rank() == 1:
        rows = training._rows
        training._rows = lambda: [  # type: ignore[method-assign]  # that is the fault
            slice(each.start - 1, each.stop - 1) for each in rows()
        ]


def share_parameters(count: int) -> Plant:
    """Sum the gradients of parameters that stages share `count` times."""

    def plant(training: DistributedTraining) -> None:
        assert training._pipeline is not None
        shared = tuple(training._pipeline.shared) * count
        training._pipeline = replace(training._pipeline, shared=shared)

    return plant


def sum_micro_batches(training: DistributedTraining) -> None:
    """Let a schedule add up the losses of micro-batches in place of their mean."""
    assert training._pipeline is not None
    training._pipeline.schedule.scale_grads = False


def earlier_micro_batch(name: str) -> Plant:
    """Hand on what the micro-batch before computed."""
    kept: list[torch.Tensor] = []

    def swap(output: torch.Tensor) -> torch.Tensor:
        kept.append(output.detach())
        return output if len(kept) == 1 else output * 0 + kept[-2]

    return change_output(name, swap)


def drop(
    name: str,
    *,
    seed: Callable[[int], int] = lambda _: 7,
    begin: Callable[[int], int] | None = None,
) -> Plant:
    """Drop numbers of an output by a mask that follows from the sample's place, as dropout of every split should.

    `seed` of the rank, and the first row that it takes by its replica, are what goes wrong.
    """

    def plant(training: DistributedTraining) -> None:
        rank = dist.get_rank() if training.mesh is not None else 0
        plan, calls = training.plan, [0]
        assert plan is not None
        first = plan.micro_batch * training._replica if begin is None else begin(rank)

        def dropped(output: torch.Tensor) -> torch.Tensor:
            generator = torch.Generator().manual_seed(seed(rank) + 1000 * calls[0])
            calls[0] += 1
            shape = (plan.micro_batch * plan.dp, *output.shape[1:])
            mask = torch.rand(shape, generator=generator, dtype=torch.float64) < 0.5
            return output * mask[first : first + len(output)] * 2

        change_output(name, dropped)(training)

    return plant


def set_attribute(module: str, name: str, value: Any) -> Plant:
    def plant(training: DistributedTraining) -> None:
        found = _submodule(training, module)
        assert hasattr(found, name)
        setattr(found, name, value)

    return plant

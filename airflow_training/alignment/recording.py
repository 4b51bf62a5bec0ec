"""Hooks on a training that write down what each module computes, gradients, parameters and the optimizer's state."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.alignment.records import RecordKind, TensorRecord, write_step

if TYPE_CHECKING:
    import torch

    from airflow_training.execution.training import DistributedTraining

__all__ = ["TrainingRecorder"]


class TrainingRecorder:
    """Records the steps of one training on this rank. Tensors that ranks share are made whole, by all of them."""

    def __init__(self, training: DistributedTraining, folder: Path, *, rank: int) -> None:
        self._training = training
        self._folder = folder
        self._rank = rank
        self._records: list[TensorRecord] = []
        self._calls: dict[str, int] = {}
        self._micro_batch = -1
        self._watched: list[str] = []
        self._names = {id(tensor): name for name, tensor in training.named_tensors()}
        # stages of a pipeline are graphs, whose modules are not the user's
        piped = training.plan is not None and training.plan.pp > 1
        for module in () if piped else training.modules:
            for name, inner in module.named_modules():
                inner.register_forward_hook(partial(self._after_forward, name))
            module.register_forward_pre_hook(self._begin_micro_batch)
        training.optimizer.register_step_pre_hook(self._before_update)

    def step(self, batch: Any) -> None:
        """Train on one batch and write down what was computed."""
        step = self._training.steps
        self._records, self._micro_batch = [], -1
        loss = self._training.step(batch)
        self._add("loss", "loss", loss)
        for name, tensor in self._training.named_tensors():
            self._add("parameter", name, tensor)
        for parameter, state in self._training.optimizer.state.items():
            for key, value in state.items():
                if hasattr(value, "shape") and value.dim():
                    self._add("optimizer", f"{self._names[id(parameter)]}:{key}", value)
        write_step(self._folder, rank=self._rank, step=step, records=self._records)

    def _begin_micro_batch(self, *_: Any) -> None:
        self._micro_batch += 1
        self._calls = {}

    def _after_forward(self, name: str, module: torch.nn.Module, _: Any, output: Any) -> None:
        import torch

        call = self._calls[name] = self._calls.get(name, -1) + 1
        micro_batch, sums, where = self._micro_batch, _sums(module), _place(module)
        found = [each for each in torch.utils._pytree.tree_leaves(output) if _is_float(each)]
        for place, tensor in enumerate(found):
            path = name or "module"
            if len(found) > 1:
                path += f"[{place}]"
            add = partial(
                self._add,
                name=path,
                micro_batch=micro_batch,
                call=call,
                sums=sums,
                module=where,
            )
            add("output", value=tensor)
            if tensor.requires_grad:
                tensor.register_hook(partial(self._observe, partial(add, "output gradient")))

    def _observe(self, record: Callable[..., None], grad: Any) -> None:
        """Record a gradient without the scale of its loss, and return none: that would replace it."""
        record(value=grad / self._training.scale)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._add("gradient", self._names[id(parameter)], parameter.grad)

    def _add(
        self,
        kind: RecordKind,
        name: str,
        value: Any,
        *,
        micro_batch: int = 0,
        call: int = 0,
        sums: int = 1,
        module: str = "",
    ) -> None:
        value = value.detach()
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        self._records.append(
            TensorRecord(
                kind=kind,
                name=name,
                order=len(self._records) + 1,
                sums=sums,
                value=value.cpu().clone(),
                micro_batch=micro_batch,
                call=call,
                module=module,
            )
        )


def _is_float(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and value.is_floating_point()


def _sums(module: torch.nn.Module) -> int:
    """How many products one number of a module's output adds up: the largest of its own weights' rows."""
    own = [each for each in module.parameters(recurse=False) if each.dim() > 1]
    return max((each.shape.numel() // each.shape[0] for each in own), default=1)


def _place(module: torch.nn.Module) -> str:
    """The class of a module, and the line of its `forward` where it is the user's."""
    kind: Any = type(module)
    # `fully_shard` puts a class of its own in front
    original = kind.__mro__[1] if kind.__name__.startswith("FSDP") else kind
    if original.__module__.startswith("torch."):
        return str(original.__name__)
    try:
        file = inspect.getsourcefile(original)
        line = inspect.getsourcelines(original.forward)[1]
    except (OSError, TypeError):
        return str(original.__name__)
    return f"{original.__name__} ({os.path.relpath(file or '')}:{line})"

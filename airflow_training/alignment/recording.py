"""Hooks on a training that write down what each module computes, gradients, parameters and the optimizer's state."""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.alignment.records import (
    MEMORY_BYTES,
    RecordKind,
    StepWriter,
    TensorRecord,
    describe_rank,
)
from airflow_training.alignment.sketch import sketch_tensor
from airflow_training.alignment.tolerance import rounding_units

if TYPE_CHECKING:
    import torch

    from airflow_training.execution.training import DistributedTraining

__all__ = ["RecordDetail", "TrainingRecorder"]

RecordDetail = Literal["full", "sketch"]


class TrainingRecorder:
    """Records the steps of one training on this rank. Tensors that ranks share are made whole, by all of them.

    Args:
        training: what `distribute` returned, with a plan.
        folder: the same on all ranks, or copied together later: each writes files of its own.
        rank: of this process.
        detail: `sketch` writes the loss and 256 numbers of each gradient only, enough to find the step in which
            runs part.
        watch: tells by a module's name whether what it computes is written; None: of all modules.
        memory: bytes that are held before they are written.

    """

    def __init__(
        self,
        training: DistributedTraining,
        folder: Path,
        *,
        rank: int,
        detail: RecordDetail = "full",
        watch: Callable[[str], bool] | None = None,
        memory: int = MEMORY_BYTES,
    ) -> None:
        if training.plan is None:
            raise ValueError("a training without a plan has no micro-batches to name: give it one")
        self._training = training
        self._plan = training.plan
        self._folder = folder
        self._rank = rank
        self._detail = detail
        self._watch = watch
        self._memory = memory
        self._steps: list[int] = []
        self._writer: StepWriter | None = None
        self._order = 0
        self._units = 0.0
        self._calls: dict[tuple[int, str], int] = {}
        self._micro_batches: dict[int, int] = {}
        self._kept: set[tuple[str, str, int, int]] = set()
        (folder / f"{rank}.json").unlink(missing_ok=True)  # of what was recorded there before
        self._names = {id(tensor): name for name, tensor in training.named_tensors()}
        for stage, module in zip(training.stage_numbers, training.modules, strict=True):
            for name, inner in module.named_modules():
                inner.register_forward_hook(partial(self._after_forward, stage, name))
            module.register_forward_pre_hook(partial(self._begin_micro_batch, stage))
        training.optimizer.register_step_pre_hook(self._before_update)

    def step(self, batch: Any) -> None:
        """Train on one batch and write down what was computed."""
        step = self._training.steps
        self._order, self._units = 0, 0.0
        self._micro_batches, self._calls, self._kept = {}, {}, set()
        self._writer = StepWriter(self._folder, rank=self._rank, step=step, memory=self._memory)
        loss = self._training.step(batch)
        self._add("loss", "loss", loss)
        if self._detail == "full":
            for name, tensor in self._training.named_tensors():
                self._add("parameter", name, tensor)
            for parameter, state in self._training.optimizer.state.items():
                for key, value in state.items():
                    if hasattr(value, "shape") and value.dim():
                        self._add("optimizer", f"{self._names[id(parameter)]}:{key}", value)
        self._writer.close()
        self._writer = None
        self._steps.append(step)
        describe_rank(
            self._folder,
            rank=self._rank,
            strategy=asdict(self._plan),
            steps=self._steps,
            versions=_versions(self._training),
        )

    def _begin_micro_batch(self, stage: int, *_: Any) -> None:
        self._micro_batches[stage] = self._micro_batches.get(stage, -1) + 1
        for each in [each for each in self._calls if each[0] == stage]:
            del self._calls[each]

    def _after_forward(
        self, stage: int, path: str, module: torch.nn.Module, _: Any, output: Any
    ) -> None:
        if self._writer is None:
            return  # a step that is not recorded
        import torch

        # torch.export calls the second use of a module `name@1`
        name, _, use = path.partition("@")
        call = self._calls[stage, path] = self._calls.get((stage, path), -1) + 1
        micro_batch, units = self._micro_batches.get(stage, 0), rounding_units(_products(module))
        found = [each for each in torch.utils._pytree.tree_leaves(output) if _is_float(each)]
        written = self._detail == "full" and (self._watch is None or self._watch(name))
        where, source = (_place(module), _calling_line()) if written else ("", "")
        for place, tensor in enumerate(found):
            label = name or "module"
            if len(found) > 1:
                label += f"[{place}]"
            add = partial(
                self._add,
                name=label,
                micro_batch=micro_batch,
                call=call + int(use or 0),
                units=units,
                module=where,
                source=source,
                stage=stage,
                written=written,
            )
            add("output", value=tensor)
            if tensor.requires_grad:
                tensor.register_hook(partial(self._observe, partial(add, "output gradient")))

    def _observe(self, record: Callable[..., None], grad: Any) -> None:
        """Record a gradient without the scale of its loss, and return none: that would replace it."""
        record(value=grad / self._training.scale)

    def _before_update(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._writer is None:
            return
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    name = self._names[id(parameter)]
                    self._add("gradient", name, parameter.grad, brief=self._detail == "sketch")

    def _add(
        self,
        kind: RecordKind,
        name: str,
        value: Any,
        *,
        micro_batch: int = 0,
        call: int = 0,
        units: float = 1.0,
        module: str = "",
        source: str = "",
        stage: int = 0,
        written: bool = True,
        brief: bool = False,
    ) -> None:
        key = (kind, name, micro_batch, call)
        if self._writer is None or (kind == "output gradient" and key in self._kept):
            return  # schedules that part the backward pass go through some of it twice
        self._kept.add(key)
        self._order += 1
        self._units += units
        if not written:
            return
        value = value.detach()
        if hasattr(value, "full_tensor"):
            value = value.full_tensor()
        value = sketch_tensor(value, name) if brief else value.cpu().clone()
        self._writer.add(
            TensorRecord(
                kind=kind,
                name=name,
                order=self._order,
                rounding=self._units,
                value=value,
                micro_batch=micro_batch,
                call=call,
                module=module,
                source=source,
                stage=stage,
            )
        )


def _is_float(value: Any) -> bool:
    return hasattr(value, "is_floating_point") and value.is_floating_point()


def _products(module: torch.nn.Module) -> int:
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


def _calling_line() -> str:
    """The line of the user's code that called the module whose hook runs; empty where torch or we did."""
    import torch

    library = str(Path(torch.__file__).parent)
    execution = str(Path(__file__).parent.parent / "execution")
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(execution):
            return ""
        if not file.startswith((library, "<")):
            return f"{os.path.relpath(file)}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


def _versions(training: DistributedTraining) -> dict[str, str]:
    import torch

    from airflow_training import __version__

    device = next(training.modules[0].parameters()).device.type
    return {"torch": torch.__version__, "airflow-training": __version__, "device": device}

"""Which samples of a step's batch a replica trains on, and in which pass.

A step's batch is cut into micro-batches of `micro_batch * dp` samples each, in order; of each, replica r takes the
r-th part. So the serial training with the same micro-batches sees the same samples together.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan

if TYPE_CHECKING:
    import torch

__all__ = ["as_inputs", "micro_batch_rows", "repeat_rows", "split_batch", "take_rows"]


def micro_batch_rows(plan: ExecutionPlan, replica: int) -> list[slice]:
    """List for each pass of a replica which rows of the whole batch it takes."""
    share = plan.micro_batch * plan.dp
    begin = replica * plan.micro_batch
    return [
        slice(number * share + begin, number * share + begin + plan.micro_batch)
        for number in range(plan.micro_batches)
    ]


def split_batch(batch: Any) -> tuple[tuple[Any, ...], Any]:
    """The module's arguments and the target in a batch.

    Raises:
        InputError: it is no pair.

    """
    if not isinstance(batch, tuple | list) or len(batch) != 2:
        raise InputError.of(
            code="BadBatch",
            field="batch",
            message=f"a batch is a pair of inputs and target, not {type(batch).__name__}",
            hint="several inputs come as a tuple: ((users, items), target)",
        )
    return as_inputs(batch[0]), batch[1]


def as_inputs(given: Any) -> tuple[Any, ...]:
    """Return the positional arguments of the module."""
    return tuple(given) if isinstance(given, tuple | list) else (given,)


def take_rows(values: Sequence[Any], rows: slice) -> tuple[Any, ...]:
    """Return the rows of every tensor."""
    return tuple(value[rows] if hasattr(value, "shape") else value for value in values)


def repeat_rows(values: Sequence[Any], count: int) -> tuple[Any, ...]:
    """Return the tensors with `count` rows: theirs, again and again."""
    import torch

    def stretched(value: torch.Tensor) -> torch.Tensor:
        return value[torch.arange(count, device=value.device) % len(value)]

    return tuple(stretched(value) if hasattr(value, "shape") else value for value in values)

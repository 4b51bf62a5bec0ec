"""Which samples of a step's batch a replica trains on, and in which pass.

A step's batch is cut into micro-batches of `micro_batch * dp` samples each, in order; of each, replica r takes the
r-th part. So the serial training with the same micro-batches sees the same samples together. Parts may have unlike
sizes: a replica's mean counts by them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan

if TYPE_CHECKING:
    import torch

__all__ = [
    "as_inputs",
    "check_rows",
    "check_same",
    "check_tensors",
    "micro_batch_rows",
    "move_tensors",
    "repeat_rows",
    "replica_weight",
    "sample_places",
    "split_batch",
    "take_rows",
]

_LEFT_OUT = -100
"""What torch's losses leave out by default (`ignore_index`)."""


def micro_batch_rows(
    plan: ExecutionPlan, replica: int, samples: Sequence[int] | None = None
) -> list[slice]:
    """List for each pass of a replica which rows of the whole batch it takes.

    `samples`: of each replica in a pass, where they are no longer those of the plan.
    """
    samples = samples or plan.samples
    begin = sum(samples[:replica])
    return [
        slice(start + begin, start + begin + samples[replica])
        for start in range(0, plan.global_batch, plan.shared_batch)
    ]


def sample_places(
    micro_batches: Sequence[tuple[tuple[Any, ...], Any]],
    rows: Sequence[slice] | None,
    replica: int,
) -> list[range]:
    """Number the samples of each pass by their places in the step's batch; without `rows`, among those of the replica."""
    from torch.utils._pytree import tree_leaves

    counts = [
        next((len(each) for each in tree_leaves(inputs) if getattr(each, "shape", ())), 1)
        for inputs, _ in micro_batches
    ]
    if rows is None:
        ends = list(accumulate(counts, initial=replica << 32))
        return [range(*each) for each in pairwise(ends)]
    return [
        range(each.start or 0, (each.start or 0) + count)
        for each, count in zip(rows, counts, strict=True)
    ]


def replica_weight(samples: Sequence[int], replica: int) -> float:
    """Return as how many replicas of even size one counts, so that the mean over replicas is that over samples."""
    return samples[replica] * len(samples) / sum(samples)


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


def take_rows(values: Any, rows: slice) -> Any:
    """Return the rows of every tensor, in whatever tuples, lists and mappings they are."""
    from torch.utils._pytree import tree_map

    return tree_map(lambda value: value[rows] if hasattr(value, "shape") else value, values)


def repeat_rows(values: Any, count: int) -> Any:
    """Return the tensors with `count` rows: theirs, again and again."""
    import torch
    from torch.utils._pytree import tree_map

    def stretched(value: torch.Tensor) -> torch.Tensor:
        return value[torch.arange(count, device=value.device) % len(value)]

    return tree_map(lambda value: stretched(value) if hasattr(value, "shape") else value, values)


def check_rows(
    plan: ExecutionPlan,
    inputs: tuple[Any, ...],
    target: Any,
    samples: Sequence[int] | None = None,
) -> None:
    """Check that every tensor of a step's batch has the plan's samples along dimension 0.

    Targets of -100 are what `cross_entropy` leaves out of its mean: each replica has to have as many for a sample.
    `samples`: of each replica in a pass, where they are no longer those of the plan.

    Raises:
        InputError: names the tensor, as of `inputs[0]['mask']` or `target`.

    """
    import torch
    from torch.utils._pytree import keystr, tree_flatten_with_path

    for part, values in (("inputs", inputs), ("target", target)):
        for path, value in tree_flatten_with_path(values)[0]:
            if isinstance(value, Mapping):
                raise InputError.of(
                    code="BadBatch",
                    field=f"{part}{keystr(path)}",
                    message=f"{type(value).__name__} is a mapping that torch does not look into",
                    hint="give it as dict(...)",
                )
            if not hasattr(value, "shape"):
                continue
            count = len(value) if len(value.shape) else 0
            name = f"{part}{keystr(path)}"
            if count != plan.global_batch:
                raise InputError.of(
                    code="BadBatch",
                    field=name,
                    message=f"{count} samples, and a step of the plan has {plan.global_batch}",
                    value=count,
                    allowed=(plan.global_batch,),
                    hint="every rank gives the whole batch; the plan says which part it trains on",
                )
    if plan.dp == 1 or not isinstance(target, torch.Tensor) or target.is_floating_point():
        return
    samples = samples or plan.samples
    by_sample = (target == _LEFT_OUT).reshape(plan.micro_batches, plan.shared_batch, -1).sum(-1)
    parts = torch.split(by_sample, list(samples), 1)
    left_out = torch.stack([each.sum(-1) for each in parts], 1)
    each_of = torch.tensor(samples, device=target.device)
    if bool((left_out * samples[0] != left_out[:, :1] * each_of).any()):
        raise InputError.of(
            code="UnevenTargets",
            field="target",
            message=f"replicas have unlike numbers of targets {_LEFT_OUT}, which a mean leaves out",
            hint="take dp 1, or a loss that is a mean over samples of the same weight",
        )


def check_same(batch: Any) -> None:
    """Check that all ranks were given the same batch; all of them call it.

    Raises:
        InputError: on all of them, with the first rank whose batch is another.

    """
    import torch.distributed as dist

    marks: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(marks, _checksums(batch))
    other = next((rank for rank, mark in enumerate(marks) if mark != marks[0]), None)
    if other is not None:
        raise InputError.of(
            code="UnlikeBatches",
            field="batch",
            message=f"rank {other} was given another batch than rank 0",
            value=other,
            hint="every rank gives the same whole batch: let samplers draw from the same seed, without a rank",
        )


def _checksums(batch: Any) -> list[int]:
    """Return for each tensor a number of its bytes and their order, the same on every machine."""
    import torch

    sums = []
    for value in torch.utils._pytree.tree_leaves(batch):
        if isinstance(value, torch.Tensor):
            octets = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).long()
            sums.append(int((octets * (torch.arange(len(octets)) % 65521 + 1)).sum()))
    return sums


def check_tensors(values: Sequence[Any]) -> None:
    """Check that what a pipeline cuts into micro-batches are tensors: inputs, and the target.

    Raises:
        InputError: one is something else.

    """
    import torch

    for place, value in enumerate(values):
        if not isinstance(value, torch.Tensor):
            raise InputError.of(
                code="NotSplit",
                field=f"batch[{place}]",
                message=f"{type(value).__name__} is no tensor, and a pipeline cuts tensors only",
                hint="give several inputs as a tuple of tensors, or take a plan with pp 1",
            )


def move_tensors(values: Any, like: torch.Tensor) -> Any:
    """Bring tensors to the device, and floats into the type, of a parameter."""
    from torch.utils._pytree import tree_map

    def moved(value: Any) -> Any:
        if not hasattr(value, "is_floating_point"):
            return value
        return value.to(like.device, like.dtype if value.is_floating_point() else None)

    return tree_map(moved, values)

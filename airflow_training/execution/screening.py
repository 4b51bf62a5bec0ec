"""What of a module cannot be split so that the result stays the serial one: found by running it once.

A copy of the module runs on the example: whole, and its halves apart. A leaf module that gives other results for
halves depends on the batch; one that moves the generator of random numbers draws from it.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.execution.execution_plan import ExecutionPlan

if TYPE_CHECKING:
    import torch

__all__ = ["screen_module"]


def screen_module(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    plan: ExecutionPlan,
    *,
    random_allowed: bool = False,
) -> None:
    """Check that the module, trained as the plan says, can equal its serial training.

    `random_allowed` lets modules draw random numbers.

    Raises:
        InputError: names each module that draws random numbers, or whose result depends on the other samples of
            a batch that replicas share.

    """
    if plan.devices == 1:
        return
    drawing = dict(_random_modules(module, inputs))
    problems = [] if random_allowed else [_random(*each) for each in drawing.items()]
    if plan.dp > 1:
        problems += [
            _batched(name, kind, plan)
            for name, kind in _batch_modules(module, inputs, quiet=drawing)
            if not (kind.startswith("BatchNorm") and plan.pp == 1)
        ]
    if problems:
        raise InputError(problems=tuple(problems))


def _random(name: str, kind: str) -> Problem:
    return Problem(
        code="RandomOperator",
        field=name,
        message=f"{kind} draws random numbers, which would be others under this split than in serial training",
        hint="set its probability to 0, or pass `randomness='independent'` where equality is not needed",
    )


def _batched(name: str, kind: str, plan: ExecutionPlan) -> Problem:
    return Problem(
        code="BatchOperator",
        field=name,
        message=(
            f"{kind} gives other results for a part of a batch, and {plan.dp} replicas hold a part each"
            + (" of every stage" if plan.pp > 1 else "")
        ),
        hint="take dp 1, or an operator that treats samples one by one (GroupNorm, LayerNorm)",
    )


def _random_modules(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    import torch

    found: dict[str, str] = {}
    before: dict[str, torch.Tensor] = {}
    trial = copy.deepcopy(module)
    names = {inner: name for name, inner in trial.named_modules()}

    def enter(inner: torch.nn.Module, _: Any) -> None:
        before[names[inner]] = torch.get_rng_state()

    def leave(inner: torch.nn.Module, _: Any, __: Any) -> None:
        name = names[inner]
        inside = any(other.startswith(f"{name}." if name else "") for other in found)
        if not inside and not torch.equal(before[name], torch.get_rng_state()):
            found[name] = type(inner).__name__

    for inner in names:
        inner.register_forward_pre_hook(enter)
        inner.register_forward_hook(leave)
    with torch.random.fork_rng(), torch.no_grad():
        trial(*inputs)
    yield from found.items()


def _batch_modules(
    module: torch.nn.Module, inputs: tuple[Any, ...], *, quiet: Iterable[str]
) -> Iterator[tuple[str, str]]:
    """Yield the first module that depends on the batch; `quiet` modules run as in evaluation."""
    import torch

    size = next(value.shape[0] for value in inputs if isinstance(value, torch.Tensor))
    if size < 2:
        return
    trial = copy.deepcopy(module)
    for name in quiet:
        trial.get_submodule(name).eval()
    names = {inner: name for name, inner in trial.named_modules() if not list(inner.children())} | {
        trial: ""
    }
    outputs: list[dict[str, Any]] = []

    def leave(inner: torch.nn.Module, _: Any, output: Any) -> None:
        outputs[-1].setdefault(names[inner], output)

    for inner in names:
        inner.register_forward_hook(leave)
    half = size // 2
    with torch.random.fork_rng(), torch.no_grad():
        for rows in (slice(0, 2 * half), slice(0, half), slice(half, 2 * half)):
            outputs.append({})
            trial(*(value[rows] if isinstance(value, torch.Tensor) else value for value in inputs))
    whole, first, second = outputs
    for name, output in whole.items():
        tensors = output if isinstance(output, tuple | list) else (output,)
        parts = [
            part[name] if isinstance(part[name], tuple | list) else (part[name],)
            for part in (first, second)
        ]
        for value, one, two in zip(tensors, *parts, strict=True):
            if not isinstance(value, torch.Tensor) or not value.dim() or len(value) != 2 * half:
                continue
            if not _close(value, torch.cat([one, two])):
                yield name, type(trial.get_submodule(name)).__name__
                return  # what follows it differs by that


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = float(one.abs().max()) if one.numel() else 0.0
    limit = 1e3 * torch.finfo(one.dtype).eps * max(scale, 1e-30)
    return float((one - other).abs().max() if one.numel() else 0.0) <= limit

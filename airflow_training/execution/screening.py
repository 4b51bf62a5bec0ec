"""What of a module cannot be split so that the result stays the serial one: found by running it once.

A copy of the module runs on the example: whole, and its halves apart. A leaf module that gives other results for
halves of the same inputs depends on the batch, and so does one whose buffers end up different; one that moves the
generator of random numbers draws from it. What draws by the samples' positions does neither.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.forwarding import cuda_devices, run_eagerly
from airflow_training.execution.microbatches import take_rows
from airflow_training.execution.position_streams import PositionStreams
from airflow_training.execution.precision import whole_products

if TYPE_CHECKING:
    import torch

__all__ = ["screen_loss", "screen_module"]


@whole_products()
def screen_module(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    plan: ExecutionPlan,
    *,
    random_allowed: bool = False,
    streams: PositionStreams | None = None,
) -> None:
    """Check that the module, trained as the plan says, can equal its serial training.

    `random_allowed` lets modules draw random numbers; `streams` are where they draw them by position.

    Raises:
        InputError: names each module that draws random numbers, or whose result depends on the other samples of
            a batch that replicas share, or that recomputation would change twice.

    """
    problems: list[Problem] = []
    if plan.recompute != "none":
        problems += [_changing(*each) for each in _changed_modules(module, inputs)]
    if plan.devices > 1:
        drawing = dict(_random_modules(module, inputs, streams))
        if not random_allowed:
            problems += [_random(*each) for each in drawing.items()]
        if plan.dp > 1:
            problems += [
                _batched(name, kind, plan)
                for name, kind in _batch_modules(
                    module, inputs, quiet=drawing, replicated=plan.pp == 1, streams=streams
                )
            ]
    if problems:
        raise InputError(problems=tuple(problems))


@whole_products()
def screen_loss(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    target: Any,
    loss: Callable[[Any, Any], torch.Tensor],
    plan: ExecutionPlan,
) -> None:
    """Check that the loss of a batch is the mean of those of its halves, where replicas hold a part each.

    Raises:
        InputError: it is not, as of a sum or of weights.

    """
    import torch

    size = _samples(inputs)
    if plan.dp == 1 or size < 2:
        return
    half = size // 2

    def rows(value: Any, begin: int, end: int) -> Any:
        whole = isinstance(value, torch.Tensor) and value.dim() and len(value) == size
        return value[begin:end] if whole else value

    with torch.random.fork_rng(cuda_devices([module])), torch.no_grad(), run_eagerly():
        output = copy.deepcopy(module)(*inputs)
        losses = []
        for part in ((0, 2 * half), (0, half), (half, 2 * half)):
            given = torch.utils._pytree.tree_map(
                lambda value, part=part: rows(value, *part), (output, target)
            )
            losses.append(loss(*given))
    whole, first, second = losses
    if not _close(whole, (first + second) / 2):
        raise InputError.of(
            code="LossNoMean",
            field="loss",
            message=(
                f"{float(whole):.6g} for {2 * half} samples, and the mean of its halves is"
                f" {float(first + second) / 2:.6g}: {plan.dp} replicas average the losses of their parts"
            ),
            hint="take a mean over samples, without weights or targets that are left out",
        )


def _samples(inputs: Sequence[Any]) -> int:
    from torch.utils._pytree import tree_leaves

    sizes = [len(value) for value in tree_leaves(inputs) if getattr(value, "shape", ())]
    return min(sizes, default=0)


def _random(name: str, kind: str) -> Problem:
    return Problem(
        code="RandomOperator",
        field=name or "module",
        message=(
            f"{kind} draws random numbers that are not known by position, and would be others under this split than in"
            " serial training"
        ),
        hint="set its probability to 0, or pass `randomness='independent'` where equality is not needed",
    )


def _batched(name: str, kind: str, plan: ExecutionPlan) -> Problem:
    return Problem(
        code="BatchOperator",
        field=name or "module",
        message=(
            f"{kind} gives other results for a part of a batch, and {plan.dp} replicas hold a part each"
            + (" of every stage" if plan.pp > 1 else "")
        ),
        hint="take dp 1, or an operator that treats samples one by one (GroupNorm, LayerNorm)",
    )


def _changing(name: str, kind: str) -> Problem:
    return Problem(
        code="RecomputedBuffer",
        field=name or "module",
        message=f"{kind} changes its buffers in the forward pass, and recomputation would change them twice",
        hint="take a plan with recompute none, or a norm without running statistics",
    )


def _changed_modules(module: torch.nn.Module, inputs: tuple[Any, ...]) -> Iterator[tuple[str, str]]:
    """Yield each module whose own buffers a forward pass changes."""
    import torch

    trial = copy.deepcopy(module)
    before = {name: buffer.clone() for name, buffer in trial.named_buffers()}
    with torch.random.fork_rng(cuda_devices([module])), torch.no_grad(), run_eagerly():
        trial(*inputs)
    changed = dict.fromkeys(
        name.rpartition(".")[0]
        for name, buffer in trial.named_buffers()
        if not torch.equal(before[name], buffer)
    )
    yield from ((name, type(trial.get_submodule(name)).__name__) for name in changed)


def _random_modules(
    module: torch.nn.Module, inputs: tuple[Any, ...], streams: PositionStreams | None
) -> Iterator[tuple[str, str]]:
    import torch

    found: dict[str, str] = {}
    before: dict[str, list[torch.Tensor]] = {}
    trial = copy.deepcopy(module)
    names = {inner: name for name, inner in trial.named_modules()}
    if streams is not None:
        streams.attach(trial)
        streams.begin(0, [range(max(_samples(inputs), 1))])

    def generators() -> list[torch.Tensor]:
        return [torch.get_rng_state(), *map(torch.cuda.get_rng_state, cuda_devices([module]))]

    def enter(inner: torch.nn.Module, _: Any) -> None:
        before[names[inner]] = generators()

    def leave(inner: torch.nn.Module, _: Any, __: Any) -> None:
        name = names[inner]
        inside = any(other.startswith(f"{name}." if name else "") for other in found)
        if not inside and not all(map(torch.equal, before[name], generators())):
            found[name] = type(inner).__name__

    for inner in names:
        inner.register_forward_pre_hook(enter)
        inner.register_forward_hook(leave)
    with torch.random.fork_rng(cuda_devices([module])), torch.no_grad(), run_eagerly():
        trial(*inputs)
    yield from found.items()


def _batch_modules(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    *,
    quiet: Iterable[str],
    replicated: bool,
    streams: PositionStreams | None,
) -> Iterator[tuple[str, str]]:
    """Yield the first module that depends on the batch, else those whose buffers do.

    `quiet` modules run as in evaluation; with `replicated` batch norms see all replicas, and do not count.
    """
    import torch

    from airflow_training.execution.replicated_norm import BATCH_NORMS

    half = _samples(inputs) // 2
    if not half:
        raise InputError.of(
            code="BadBatch",
            field="example",
            message="one sample does not show whether the module treats samples one by one",
            hint="give a batch of at least two",
        )
    trial = copy.deepcopy(module)
    for name in quiet:
        trial.get_submodule(name).eval()
    names = {inner: name for name, inner in trial.named_modules() if not list(inner.children())} | {
        trial: ""
    }
    for inner in names:
        if replicated and type(inner) in BATCH_NORMS:
            inner.forward = lambda values: values
    if streams is not None:
        streams.attach(trial)
    calls: list[dict[str, tuple[Any, Any]]] = []
    buffers: list[dict[str, torch.Tensor]] = []

    def leave(inner: torch.nn.Module, given: Any, output: Any) -> None:
        calls[-1].setdefault(names[inner], (given, output))

    for inner in names:
        inner.register_forward_hook(leave)
    start = copy.deepcopy(dict(trial.named_buffers()))
    with torch.random.fork_rng(cuda_devices([module])), torch.no_grad(), run_eagerly():
        for rows in (slice(0, 2 * half), slice(0, half), slice(half, 2 * half)):
            for name, buffer in trial.named_buffers():
                buffer.copy_(start[name])
            calls.append({})
            if streams is not None:
                streams.begin(0, [range(rows.start, rows.stop)])
            trial(*take_rows(inputs, rows))
            buffers.append({name: buffer.clone() for name, buffer in trial.named_buffers()})
    for name in calls[0]:
        whole, first, second = (each.get(name, ((), ())) for each in calls)
        if not _agree(whole[1], first[1], second[1]):
            alike = _agree(whole[0], first[0], second[0])
            guilty = name if alike else name.rpartition(".")[0]  # what is around it mixed samples
            yield guilty, type(trial.get_submodule(guilty)).__name__
            return  # what follows it differs by that
    unlike = dict.fromkeys(
        name.rpartition(".")[0]
        for name, value in buffers[0].items()
        if not all(_close(value, other[name]) for other in buffers[1:])
    )
    yield from ((name, type(trial.get_submodule(name)).__name__) for name in unlike)


def _agree(whole: Any, first: Any, second: Any) -> bool:
    """Tell whether what came of a batch is what came of its halves: side by side, or their mean."""
    import torch

    leaves = [
        [
            value
            for value in torch.utils._pytree.tree_leaves(each)
            if isinstance(value, torch.Tensor)
        ]
        for each in (whole, first, second)
    ]
    if len({len(each) for each in leaves}) > 1:
        return False
    return all(_is_joined(*each) for each in zip(*leaves, strict=True))


def _is_joined(whole: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> bool:
    import torch

    if whole.shape == first.shape == second.shape:
        mean = (first + second) / 2 if whole.is_floating_point() else first
        return _close(whole, mean)
    for dim in range(whole.dim()):
        if first.dim() == second.dim() == whole.dim() and (
            [*whole.shape[:dim], *whole.shape[dim + 1 :]]
            == [*first.shape[:dim], *first.shape[dim + 1 :]]
            == [*second.shape[:dim], *second.shape[dim + 1 :]]
        ):
            together = torch.cat([first, second], dim)
            return whole.shape == together.shape and _close(whole, together)
    return False


def _close(one: torch.Tensor, other: torch.Tensor) -> bool:
    import torch

    if not one.is_floating_point():
        return torch.equal(one, other)
    scale = float(one.abs().where(one.isfinite(), 0.0).max()) if one.numel() else 0.0
    limit = 1e3 * torch.finfo(one.dtype).eps * max(scale, 1e-30)
    # a mask's infinities equal themselves
    apart = (one - other).abs().where(one != other, 0.0)
    return float(apart.max() if one.numel() else 0.0) <= limit

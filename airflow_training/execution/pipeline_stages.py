"""A module cut into the stages of a pipeline, by torch's tracer, and run on torch's schedules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import redirect_stderr
from dataclasses import dataclass
from functools import reduce
from io import StringIO
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError, Problem
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.position_streams import draws, original_path
from airflow_training.execution.stage_cuts import find_stage_starts
from airflow_training.execution.stage_inputs import (
    InputFeed,
    feed_later_stages,
    first_stage_places,
)

if TYPE_CHECKING:
    import torch
    from torch.distributed import ProcessGroup
    from torch.distributed.pipelining import Pipe

    from airflow_training.planning.view.computation import ComputationView

__all__ = [
    "PipelineRun",
    "SharedParameter",
    "check_draws",
    "cut_module",
    "drop_unread",
    "make_schedule",
    "sum_shared_gradients",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedParameter:
    """A parameter that several stages hold a copy of each."""

    names: dict[int, str]
    """Stage -> its name there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineRun:
    """What a step of a pipeline needs beside its stages."""

    schedule: Any
    runtimes: Sequence[Any]
    """This rank's stages, as torch runs them."""
    shared: Sequence[SharedParameter]
    feed: InputFeed
    first_inputs: Sequence[int]
    """Which inputs of the module the first stage takes."""
    group: ProcessGroup
    """The ranks that hold the stages of one replica."""


def cut_module(
    module: torch.nn.Module,
    inputs: tuple[Any, ...],
    view: ComputationView,
    plan: ExecutionPlan,
) -> tuple[Pipe, list[SharedParameter], list[int]]:
    """Trace a module on the inputs of one micro-batch and cut it where the plan says.

    Returns what torch makes of it, the parameters of several stages, and which inputs the first stage takes.

    Raises:
        InputError: the module cannot be traced, or its stages cannot be those of the plan.

    """
    from torch.distributed.pipelining import pipeline

    canonical = _first_names(module)

    places: list[int] = []

    def cut(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
        _insert_cuts(graph, canonical, view, plan)
        places.extend(first_stage_places(graph))
        return graph

    try:
        with redirect_stderr(StringIO()):
            pipe = pipeline(module, inputs, split_policy=cut)
    except InputError:
        raise
    except Exception as error:
        said = str(error.__cause__ or error).strip().splitlines()[0]
        raise InputError.of(
            code="NoStages",
            field="strategy.pp",
            message=f"the module cannot be cut into stages: {type(error).__name__}: {said}",
            value=plan.pp,
            hint="torch.export has to trace it; a plan with pp 1 needs no trace",
        ) from error
    for index in range(plan.stages):
        _send_contiguous(pipe.get_stage_module(index), last=index == plan.stages - 1)
    shared = [
        SharedParameter(
            names={
                int(name.removeprefix("submod_pp_").removeprefix("submod_")): key
                for name, key in mapping.items()
            }
        )
        for mapping in pipe.replicated_params
    ]
    if not places:
        raise InputError.of(
            code="NoStages",
            field="strategy.pp",
            message="the first stage would read no input",
            value=plan.pp,
        )
    return pipe, shared, places


def check_draws(pipe: Pipe, owners: Collection[str], plan: ExecutionPlan) -> None:
    """Check that each module that draws random numbers lies on one stage, where its draws are counted.

    Raises:
        InputError: one does not.

    """
    stages: dict[str, set[int]] = {each: set() for each in owners}
    for index in range(plan.stages):
        for name, inner in pipe.get_stage_module(index).named_modules():
            path = original_path(name)
            nodes = getattr(getattr(inner, "graph", None), "nodes", ())
            if path in stages and any(draws(node.target, node.args, node.kwargs) for node in nodes):
                stages[path].add(index)
    problems = [
        Problem(
            code="RandomOperator",
            field=path or "module",
            message=f"draws random numbers itself, and its trace lies on {len(found)} stages",
            hint="draw them in a module of their own, as nn.Dropout, or take a plan with pp 1",
        )
        for path, found in stages.items()
        if len(found) != 1
    ]
    if problems:
        raise InputError(problems=problems)


def drop_unread(stage: torch.nn.Module) -> None:
    """Take from a stage the parameters that it never reads: stale copies of those that stages share."""
    read = {
        id(reduce(getattr, str(node.target).split("."), inner))
        for inner in stage.modules()
        for node in getattr(getattr(inner, "graph", None), "nodes", ())
        if node.op == "get_attr"
    }
    for inner in stage.modules():
        for key, parameter in list(inner._parameters.items()):
            if parameter is not None and id(parameter) not in read:
                del inner._parameters[key]


def make_schedule(plan: ExecutionPlan, stages: Sequence[Any], loss: Callable[..., Any]) -> Any:
    """Make the schedule of the plan's name over this rank's stages."""
    from torch.distributed.pipelining.schedules import (
        PipelineScheduleSingle,
        get_schedule_class,
    )

    kind = get_schedule_class(plan.torch_schedule)
    given = stages[0] if issubclass(kind, PipelineScheduleSingle) else list(stages)
    return kind(given, plan.micro_batches, loss_fn=loss)


def sum_shared_gradients(
    shared: Sequence[SharedParameter],
    stages: dict[int, torch.nn.Module],
    group: ProcessGroup,
) -> None:
    """Give all copies of a parameter the sum of their gradients; all ranks of the pipeline call it."""
    import torch
    import torch.distributed as dist

    for each in shared:
        held = [
            stages[stage].get_parameter(name)
            for stage, name in each.names.items()
            if stage in stages
        ]
        for parameter in held:
            grad: Any = parameter.grad
            if hasattr(grad, "redistribute"):  # torch may leave it a sum that is not done
                placed: Any = parameter
                parameter.grad = grad.redistribute(placements=placed.placements)
        grads = [_local(parameter.grad) for parameter in held if parameter.grad is not None]
        total = torch.stack(grads).sum(0) if grads else None
        everywhere: list[Any] = [None] * dist.get_world_size(group)
        shape = None if total is None else (tuple(total.shape), total.dtype)
        dist.all_gather_object(everywhere, shape, group=group)
        known = next((item for item in everywhere if item is not None), None)
        if known is None:
            continue
        if total is None:
            total = torch.zeros(known[0], dtype=known[1], device=_device(stages))
        dist.all_reduce(total, group=group)
        for parameter in held:
            if parameter.grad is not None:
                _local(parameter.grad).copy_(total)


def _device(stages: dict[int, torch.nn.Module]) -> Any:
    return next(next(iter(stages.values())).parameters()).device


def _local(tensor: Any) -> Any:
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _send_contiguous(stage: torch.nn.Module, *, last: bool) -> None:
    """Let a stage return, and wait for, tensors without gaps: what ranks send and receive has none."""
    import torch

    graph: Any = stage.graph
    output = next(node for node in graph.nodes if node.op == "output")
    results = set() if last else set(output.all_input_nodes)
    for node in list(graph.nodes):
        value = node.meta.get("val")
        if not isinstance(value, torch.Tensor) or value.is_contiguous():
            continue
        if node.op == "placeholder":
            node.meta = {**node.meta, "val": value.contiguous()}
        elif node in results:
            with graph.inserting_before(output):
                dense = graph.call_function(torch.ops.aten.contiguous.default, (node,))
            dense.meta = {**node.meta, "val": value.contiguous()}
            output.replace_input_with(node, dense)
    stage.recompile()  # type: ignore[operator]  # a GraphModule, whose attributes are typed as tensors or modules


def _first_names(module: torch.nn.Module) -> dict[str, str]:
    """Map every name of a parameter to the first one it has: shared ones have several."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(parameter), name)
        for name, parameter in module.named_parameters(remove_duplicate=False)
    }


def _insert_cuts(
    traced: torch.fx.GraphModule,
    canonical: dict[str, str],
    view: ComputationView,
    plan: ExecutionPlan,
) -> None:
    import torch

    reads = [
        (node, canonical[str(source.target)])
        for node in traced.graph.nodes
        if node.op == "call_function"
        for source in node.all_input_nodes
        if source.op == "get_attr" and str(source.target) in canonical
    ]
    names = [name for _, name in reads]
    unread = sorted(set(canonical.values()) - set(names))
    if unread:
        raise InputError.of(
            code="UnusedParameter",
            field=unread[0],
            message=f"forward does not read {', '.join(unread)}, which then lie on no stage",
            hint="take them out of the module, or a plan with pp 1",
        )
    starts = find_stage_starts(view, names, stages=plan.stages, stage_layers=plan.stage_layers)
    feed_later_stages(traced, reads[starts[0]][0])
    for place in starts:
        with traced.graph.inserting_before(reads[place][0]):
            traced.graph.call_function(torch.ops.pippy._pipe_split.default)
    traced.recompile()

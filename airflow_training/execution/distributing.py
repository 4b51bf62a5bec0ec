"""`distribute`: a module, a loss and an optimizer become a training that its plan splits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.agent.progress import mark_plan
from airflow_training.errors import InputError
from airflow_training.execution.execution_plan import ExecutionPlan, read_plan
from airflow_training.execution.loss_scale import LossScale
from airflow_training.execution.mesh import make_mesh, replica_of, world_size
from airflow_training.execution.microbatches import (
    check_tensors,
    move_tensors,
    repeat_rows,
    replica_weight,
    split_batch,
    take_rows,
)
from airflow_training.execution.parameter_splits import split_dimensions
from airflow_training.execution.pipeline_stages import (
    PipelineRun,
    check_draws,
    cut_module,
    drop_unread,
    make_schedule,
)
from airflow_training.execution.position_streams import PositionStreams, drawing_modules
from airflow_training.execution.precision import autocast_forward, set_precision
from airflow_training.execution.recomputation import recompute_activations
from airflow_training.execution.replica_speed import balance_replicas
from airflow_training.execution.replicas import blocks, replica_axis, replicate_module
from airflow_training.execution.screening import screen_loss, screen_module
from airflow_training.execution.stage_backward import (
    keep_whole,
    send_without_gaps,
    splits_backward,
)
from airflow_training.execution.stage_inputs import InputFeed, read_given
from airflow_training.execution.tensor_parallel import (
    distribute_parameters,
    whole_at_the_edges,
)
from airflow_training.execution.training import DistributedTraining, StageModule
from airflow_training.execution.trial_run import try_passes
from airflow_training.planning.view.control_flow import NODES

if TYPE_CHECKING:
    import torch
    from torch.distributed.device_mesh import DeviceMesh

    from airflow_training.planning.view.computation import ComputationView

__all__ = ["distribute"]


def distribute(
    model: torch.nn.Module,
    *,
    loss: Callable[[Any, Any], torch.Tensor],
    optimizer: Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer],
    example: Any,
    plan: ExecutionPlan | str | os.PathLike[str] | None = None,
    randomness: Literal["refuse", "independent"] = "refuse",
    root: str | os.PathLike[str] | None = None,
    every: Any = None,
    data: Any = None,
    rebalance: float | None = None,
) -> DistributedTraining:
    """Split a training as a plan says; its steps equal those of the serial one with the same micro-batches.

    Args:
        model: as for one device; it is changed in place. Rank 0's weights count.
        loss: of the module's output and the target: a scalar, a mean over samples.
        optimizer: makes the optimizer of the list of parameters it is given: those that this rank holds a part of.
        example: a batch, a pair of inputs and target; it is looked at and not trained on. Dimension 0 is the batch.
        plan: a plan or its file; None takes the file that `PLAN_FILE` names, and without that there is no split.
        randomness: `refuse` lets modules draw random numbers by position only, which are those of the serial training;
            `independent` lets them draw numbers that differ.
        root: folder or address of checkpoints, where no job says one.
        every: as of `Checkpointer`.
        data: the place in the data, saved and restored with each checkpoint: has `state_dict`, the same on all ranks, and
            `load_state_dict`.
        rebalance: how far the slowest replica may be above the mean (0.2: a fifth) before the samples of a pass are dealt out
            anew, by measured speed; None: replicas keep those of the plan.

    Raises:
        InputError: plan, ranks and module do not go together; names field, operator or module, on every rank,
            before any step.

    """
    import torch

    chosen = _chosen(plan)
    inputs, target = split_batch(example)
    _check_loss(loss)
    _check_limit(rebalance)
    if chosen is None:
        stage = StageModule(index=0, run=model, bare=model, names=_names(model))
        streams = None
        if randomness == "refuse":
            streams = _find_streams(model, _like(model, inputs))
        if streams is not None:
            streams.attach(model)
        return DistributedTraining(
            plan=None,
            mesh=None,
            stages=[stage],
            loss=loss,
            optimizer=_make_optimizer(optimizer, list(model.parameters())),
            root=root,
            every=every,
            data=data,
            streams=streams,
        )
    device_type = next(model.parameters()).device.type
    mesh = make_mesh(chosen, device_type)
    set_precision(model, chosen.precision, device_type)
    if mesh is not None:
        _broadcast(model)
    replica = 0 if mesh is None else replica_of(chosen, mesh.get_rank())
    small = _like(model, repeat_rows(inputs, chosen.samples[replica]))
    shared = slice(0, chosen.shared_batch)
    seen, (expected,) = (
        _like(model, take_rows(inputs, shared)),
        _like(model, (take_rows(target, shared),)),
    )
    with torch.no_grad():  # these are the samples of all replicas
        streams = _find_streams(model, seen) if randomness == "refuse" else None
    screen_module(model, seen, chosen, random_allowed=randomness == "independent", streams=streams)
    screen_loss(model, seen, expected, loss, chosen)
    view = _view(model, small) if chosen.tp > 1 or chosen.pp > 1 else None
    if view is not None:
        _check_control_flow(view, chosen)
    splits = _splits(model, view, chosen)
    loss_scale = LossScale() if chosen.precision == "fp16" else None
    pipeline: PipelineRun | None = None
    if view is not None and mesh is not None and chosen.pp > 1:
        passed = _weighted(loss, replica_weight(chosen.samples, replica))
        passed = passed if loss_scale is None else loss_scale.scaled(passed)
        stages, pipeline = _pipelined(model, small, view, chosen, mesh, splits, passed, streams)
    else:
        stages = [_stage(model, chosen, mesh, splits, streams)]
    balance = None
    if rebalance is not None and chosen.dp > 1:
        balance = balance_replicas(chosen, stages[0].run, limit=rebalance)
    training = DistributedTraining(
        plan=chosen,
        mesh=mesh,
        stages=stages,
        loss=loss,
        optimizer=_make_optimizer(
            optimizer, [each for stage in stages for each in stage.bare.parameters()]
        ),
        pipeline=pipeline,
        root=root,
        every=every,
        document=_document(plan),
        loss_scale=loss_scale,
        data=data,
        balance=balance,
        streams=streams,
    )

    def begin() -> None:
        if streams is not None:
            streams.begin(0, [range(chosen.samples[replica])] * chosen.micro_batches)

    def passes() -> None:
        begin()
        with training.rules():
            if pipeline is not None:
                _pass_stages(stages, pipeline, small)
            else:
                whole = repeat_rows((*inputs, target), chosen.global_batch)
                training.accumulate(training.micro_batches(whole[:-1], whole[-1]))
                _check_used(stages[0])

    modules = [stage.bare for stage in stages]
    if pipeline is None or chosen.tp > 1:
        try_passes(modules, passes, chosen)
    if pipeline is not None and chosen.schedule == "zero-bubble":
        try_passes(modules, partial(_part_backward, stages, pipeline, small, begin), chosen)
    mark_plan()
    return training


def _chosen(plan: ExecutionPlan | str | os.PathLike[str] | None) -> ExecutionPlan | None:
    if isinstance(plan, ExecutionPlan):
        return plan
    path = _path(plan)
    if path is not None:
        return read_plan(path)
    if world_size() > 1:
        raise InputError.of(
            code="NoPlan",
            field="PLAN_FILE",
            message=f"{world_size()} ranks were started, and no plan says how to split the training",
            hint="give the job a plan with `apply: [replicas, env, microBatch]`, or `plan=` here",
        )
    return None


def _path(plan: ExecutionPlan | str | os.PathLike[str] | None) -> Path | None:
    if isinstance(plan, ExecutionPlan):
        return None
    path = plan if plan is not None else os.environ.get("PLAN_FILE") or None
    return None if path is None else Path(path)


def _document(plan: ExecutionPlan | str | os.PathLike[str] | None) -> dict[str, Any] | None:
    """Return all that a plan's file says, its estimates too; it was read before."""
    path = _path(plan)
    return None if path is None else json.loads(path.read_text(encoding="utf-8"))


def _check_loss(loss: Callable[..., Any]) -> None:
    parameters = getattr(loss, "parameters", None)
    if callable(parameters) and any(each.requires_grad for each in parameters()):
        raise InputError.of(
            code="LossHasParameters",
            field="loss",
            message=f"{type(loss).__name__} has parameters of its own, which nothing would train",
            hint="make them part of the module",
        )


def _check_limit(rebalance: float | None) -> None:
    if rebalance is not None and not 0 < rebalance < float("inf"):
        raise InputError.of(
            code="BadLimit",
            field="rebalance",
            message=f"{rebalance!r} is no part of the mean time of a pass above 0",
            value=rebalance,
            hint="0.2 lets the slowest replica be a fifth above the mean",
        )


def _weighted(loss: Callable[..., Any], weight: float) -> Callable[..., Any]:
    return loss if weight == 1 else lambda output, target: loss(output, target) * weight


def _make_optimizer(make: Callable[..., Any], parameters: list[Any]) -> Any:
    import torch

    made = make(parameters)
    if not isinstance(made, torch.optim.Optimizer):
        raise InputError.of(
            code="NoOptimizer",
            field="optimizer",
            message=f"returns {type(made).__name__}, and not one torch.optim.Optimizer",
            hint="one optimizer may have several groups of parameters",
        )
    given = {id(each) for each in parameters}
    foreign = sum(id(each) not in given for group in made.param_groups for each in group["params"])
    if foreign:
        raise InputError.of(
            code="ForeignParameters",
            field="optimizer",
            message=f"{foreign} of its parameters are not among the {len(parameters)} that it was given",
            hint="the function takes the parameters as its argument: those of the module itself are no longer trained",
        )
    if isinstance(made, torch.optim.LBFGS):
        raise InputError.of(
            code="OptimizerNotSplit",
            field="optimizer",
            message="LBFGS evaluates the module within its step, and looks at all parameters together",
            hint="take one that treats parameters one by one, such as AdamW",
        )
    return made


def _check_used(stage: StageModule) -> None:
    """Check, after passes, that DistributedDataParallel has a gradient of every parameter to wait for."""
    unused = [
        name
        for name, parameter in stage.bare.named_parameters()
        if parameter.requires_grad and parameter.grad is None
    ]
    if unused and stage.run is not stage.bare:
        raise InputError.of(
            code="UnusedParameter",
            field=unused[0],
            message=f"the loss does not depend on {', '.join(unused)}, and plain replicas wait for each gradient",
            hint="freeze what is not trained (`requires_grad_(False)`), or take a plan with zero 1",
        )


def _stage(
    model: torch.nn.Module,
    plan: ExecutionPlan,
    mesh: DeviceMesh | None,
    splits: dict[str, int | None],
    streams: PositionStreams | None,
) -> StageModule:
    """Make the only stage of a training without a pipeline."""
    names = _names(model)
    if mesh is not None and plan.dp > 1:
        from airflow_training.execution.replicated_norm import replicate_batch_norms

        replicate_batch_norms(model, mesh[replica_axis(plan)].get_group())
    if streams is not None:
        streams.attach(model)
    for block in list(blocks(model)) or [model]:
        recompute_activations(block, plan, streams)
    run: Any = _dressed(model, plan, mesh, splits)
    return StageModule(index=0, run=run, bare=model, names=names)


def _dressed(
    module: torch.nn.Module,
    plan: ExecutionPlan,
    mesh: DeviceMesh | None,
    splits: dict[str, int | None],
) -> Any:
    if mesh is not None and plan.tp > 1:
        distribute_parameters(module, mesh["tp"], splits)
    autocast_forward(module, plan.precision, next(module.parameters()).device.type)
    if mesh is None:
        return module
    if plan.tp > 1:
        whole_at_the_edges(module, mesh["tp"], sequence_parallel=plan.sequence_parallel)
    return replicate_module(module, plan, mesh)


def _pipelined(
    model: torch.nn.Module,
    inputs: tuple[Any, ...],
    view: ComputationView,
    plan: ExecutionPlan,
    mesh: DeviceMesh,
    splits: dict[str, int | None],
    loss: Any,
    streams: PositionStreams | None,
) -> tuple[list[StageModule], PipelineRun]:
    """Make this rank's stages, and what runs them."""
    check_tensors(inputs)
    names = _names(model)
    pipe, shared, places = cut_module(model, inputs, view, plan)
    if streams is not None:
        check_draws(pipe, streams.owners, plan)
    group = mesh["pp"].get_group()
    rank = mesh.get_local_rank("pp")
    device = next(model.parameters()).device
    read = {
        names.get(name)
        for index in range(plan.stages)
        for name, _ in pipe.get_stage_module(index).named_buffers()
    }
    unread = {name: buffer for name, buffer in model.named_buffers() if name not in read}
    stages: list[StageModule] = []
    runtimes: list[Any] = []
    feed = InputFeed()
    for index in range(rank, plan.stages, plan.pp):
        module = pipe.get_stage_module(index)
        drop_unread(module)
        here = {
            name: names[name]
            for named in (module.named_parameters(), module.named_buffers())
            for name, _ in named
            if name in names
        }
        read_given(module)
        if streams is not None:
            streams.attach(module, stage=index)
        recompute_activations(module, plan, streams)
        own = {name: splits.get(first) for name, first in here.items()}
        dressed = _dressed(module, plan, mesh, own)
        feed.attach(module, index)
        kept = unread if index == 0 else {}
        stages.append(StageModule(index=index, run=dressed, bare=module, names=here, unread=kept))
        runtimes.append(pipe.build_stage(index, device, group))
        send_without_gaps(runtimes[-1])

    run = PipelineRun(
        schedule=make_schedule(plan, runtimes, loss),
        runtimes=runtimes,
        shared=shared,
        feed=feed,
        first_inputs=places,
        group=group,
    )
    return stages, run


def _pass_stages(
    stages: Sequence[StageModule], pipeline: PipelineRun, inputs: tuple[Any, ...]
) -> None:
    """Run each stage by itself: no other stage waits for one that cannot."""
    pipeline.feed.begin([inputs])
    for stage in stages:
        _pass_once(stage.run, _stage_inputs(stage.bare))


def _part_backward(
    stages: Sequence[StageModule],
    pipeline: PipelineRun,
    inputs: tuple[Any, ...],
    begin: Callable[[], None],
) -> None:
    """Find the stages that cannot go backward to their inputs first, as a zero-bubble schedule wants it."""
    for stage, runtime in zip(stages, pipeline.runtimes, strict=True):
        begin()
        pipeline.feed.begin([inputs])
        # nobody waits for the gradients of the first one's inputs
        if stage.index and not splits_backward(stage.run, _stage_inputs(stage.bare)):
            keep_whole(runtime)


def _stage_inputs(stage: torch.fx.GraphModule) -> tuple[Any, ...]:
    """Return tensors like those a stage will be given."""
    import torch

    metas = [node.meta["val"] for node in stage.graph.nodes if node.op == "placeholder"]
    return tuple(
        torch.zeros(
            meta.shape,
            dtype=meta.dtype,
            device=meta.device,
            requires_grad=meta.is_floating_point(),
        )
        for meta in metas
    )


def _pass_once(module: Any, inputs: tuple[Any, ...]) -> None:
    import torch

    outputs = torch.utils._pytree.tree_leaves(module(*inputs))
    total = sum(
        value.sum() for value in outputs if isinstance(value, torch.Tensor) and value.requires_grad
    )
    if isinstance(total, torch.Tensor):
        total.backward()


def _check_control_flow(view: ComputationView, plan: ExecutionPlan) -> None:
    """Raise InputError where a loop or a branch would have to be split, for which torch has no rule."""
    axis = "tp" if plan.tp > 1 else "pp"
    found = [each for each in view.operators if each.kind in NODES]
    if found:
        raise InputError.of(
            code="OperatorNotSplit",
            field=f"strategy.{axis}",
            value=getattr(plan, axis),
            message=f"{', '.join(each.name for each in found)}: torch splits no model that has"
            " loops or branches of its own, it runs them as a whole on each replica",
            hint=f"take a plan with {axis} 1",
        )


def _splits(
    model: torch.nn.Module, view: ComputationView | None, plan: ExecutionPlan
) -> dict[str, int | None]:
    if view is None or plan.tp == 1:
        return {}
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    return split_dimensions(view, shapes, sequence_parallel=plan.sequence_parallel)


def _view(model: torch.nn.Module, inputs: tuple[Any, ...]) -> ComputationView:
    from airflow_training.planning.sources.torch import trace

    return trace(model, inputs)


def _names(model: torch.nn.Module) -> dict[str, str]:
    """Map every name of a parameter or buffer to its first one."""
    first: dict[int, str] = {}
    return {
        name: first.setdefault(id(tensor), name)
        for named in (
            model.named_parameters(remove_duplicate=False),
            model.named_buffers(remove_duplicate=False),
        )
        for name, tensor in named
    }


def _find_streams(model: torch.nn.Module, inputs: tuple[Any, ...]) -> PositionStreams | None:
    """Return what gives a module its random numbers by position; None: it draws none."""
    import torch
    import torch.distributed as dist

    owners = drawing_modules(model, inputs)
    if not owners:
        return None
    seed = [torch.initial_seed()]
    if world_size() > 1:
        dist.broadcast_object_list(seed, 0)
    return PositionStreams(seed[0], owners)


def _like(model: torch.nn.Module, values: tuple[Any, ...]) -> Any:
    return move_tensors(values, next(model.parameters()))


def _broadcast(model: torch.nn.Module) -> None:
    """Give all ranks the weights of rank 0."""
    import torch
    import torch.distributed as dist

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            dist.broadcast(tensor.data, 0)

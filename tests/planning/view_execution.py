"""Runs a view on whole numpy arrays, and a distributed view on the parts that each device holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from airflow_training.planning.reshard.propagation import (
    DistributedView,
    OperatorPlacement,
    Reshard,
)
from airflow_training.planning.view.computation import ComputationView
from tests.planning.execution import Sharded, distribute, perform
from tests.planning.kernels import run_split, run_whole


def run_serial(view: ComputationView, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return every tensor of the view, computed on one device."""
    values = dict(given)
    for operator in view.operators:
        values.update(zip(operator.outputs, run_whole(view, operator, values), strict=True))
    return values


def run_distributed(
    distributed: DistributedView, given: Mapping[str, np.ndarray]
) -> dict[str, Sharded]:
    """Return every tensor of the view as it lies in the end, computed part by part."""
    at_home = {
        name: distribute(value, distributed.tensors[name], seed)
        for seed, (name, value) in enumerate(given.items())
    }
    elsewhere: dict[str, list[Sharded]] = {}
    """Per tensor where else it is: as the operator at hand wants it, or has made it."""
    for step in distributed.steps:
        if isinstance(step, Reshard):
            source = [at_home[step.tensor]] if step.tensor in at_home else elsewhere[step.tensor]
            moved = move(distributed, step, next(x for x in source if lies(x, step.source)))
            if step.tensor in at_home:
                elsewhere.setdefault(step.tensor, []).append(moved)
            else:
                at_home[step.tensor] = moved
        else:
            made = run_operator(distributed.view, step, at_home, elsewhere)
            elsewhere = {}
            for name, tensor in made.items():
                home = distributed.tensors[name]
                if lies(tensor, home):
                    at_home[name] = tensor
                else:
                    elsewhere[name] = [tensor]
    return at_home


def lies(tensor: Sharded, where) -> bool:
    return bool(tensor.distribution == where)


def move(distributed: DistributedView, step: Reshard, tensor: Sharded) -> Sharded:
    path = distributed.path(step, precision="bf16")
    for one in path.steps:
        tensor, received = perform(one, tensor)
        assert one.received_bytes == 2 * received
    stays = replace(step.source, mesh=step.target.mesh) == step.target
    if stays and step.source.mesh != step.target.mesh and not step.source.partial:
        assert [one.kind for one in path.steps] in (["slice"], ["send_recv"])
    return Sharded(tensor.shape, step.target, tensor.parts)


def run_operator(
    view: ComputationView,
    placed: OperatorPlacement,
    at_home: Mapping[str, Sharded],
    elsewhere: Mapping[str, list[Sharded]],
) -> dict[str, Sharded]:
    operator = placed.operator
    inputs = [
        next(x for x in (at_home[name], *elsewhere.get(name, ())) if lies(x, wanted))
        for name, wanted in zip(operator.inputs, placed.inputs, strict=True)
    ]
    outputs = run_split(placed, view, inputs)
    for output in outputs:
        for device, part in output.parts.items():
            shape = tuple(along.stop - along.start for along in output.box(device))
            assert part.shape == shape, f"{operator.name} makes {part.shape}, not {shape}"
    return dict(zip(operator.outputs, outputs, strict=True))

"""What stages do once for a step, beside their passes: accumulate, exchange, update."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.communication import collective_seconds
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.data_parallel import (
    Replicas,
    accumulation_seconds,
    dispatch_seconds,
    exchange_group,
    exchange_seconds,
    gradient_bytes,
    optimizer_seconds,
)
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.cost.shardings import ShardingTable
from airflow_training.planning.cost.stage_times import Pipeline, slowest_uplink
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.program import MeshAxis

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class _ReplicatedParameters:
    """Parameters of each stage that the same mesh axes replicate: (layouts, stages)."""

    over: tuple[MeshAxis, ...]
    elements: Array
    update_bytes: Array
    updates: Array


def end_of_step(
    pipeline: Pipeline,
    workload: Workload,
    table: StrategyTable,
    layout: npt.NDArray[np.int64],
    *,
    passes: Array,
    micro_batches: Array,
    constants: TimeConstants,
) -> dict[str, Array]:
    """Return seconds by part for the rows of a table, of the stage with most parameters.

    Args:
        pipeline: The stages of the rows' layouts.
        workload: What a step is.
        table: The rows.
        layout: The layout of each row.
        passes: How many passes of the slowest stage a step takes, bubbles among them.
        micro_batches: By row.
        constants: Fitted ones.

    """
    nodes = slowest_uplink(pipeline.kinds)
    every = np.arange(pipeline.layouts.count)
    parts = {name: np.zeros(len(layout)) for name in ("accumulation", "dp", "optimizer")}
    for held in _replicated(pipeline):
        most = held.elements.argmax(axis=1)
        ranks, stride = _ranks(pipeline.layouts, held.over)
        units = pipeline.held.sum(axis=0)[most][layout]
        replicas = Replicas(
            elements=held.elements[every, most][layout],
            update_bytes=held.update_bytes[every, most][layout],
            precision=workload.precision,
            runtime=workload.runtime,
            group=exchange_group(
                group_of(nodes, size=ranks[layout], stride=stride[layout]), workload.runtime
            ),
            zero=table.zero,
            overlap=table.overlap,
            micro_batches=micro_batches,
        )
        parts["dp"] += exchange_seconds(
            replicas,
            forward=pipeline.forward[every, most][layout],
            backward=pipeline.backward[every, most][layout],
            units=units,
            calls=units,
            constants=constants,
        )
        parts["accumulation"] += passes * accumulation_seconds(replicas, nodes, constants)
        parts["optimizer"] += optimizer_seconds(replicas, nodes, constants)
        parts["optimizer"] += dispatch_seconds(
            held.updates[every, most][layout],
            (table.zero > 0) | (table.tp > 1),
            nodes.device,
            workload.runtime,
            constants,
        )
    parts["tied"] = _tied_seconds(pipeline, workload, table, layout, constants)
    return parts


def _ranks(layouts: ShardingTable, over: tuple[MeshAxis, ...]) -> tuple[Array, Array]:
    """Return how many ranks hold the same parameters, and how far apart they are."""
    ranks = layouts.dp * np.where("cp" in over, layouts.cp, 1.0)
    stride = layouts.tp * np.where("cp" in over, 1.0, layouts.cp)
    if "ep" in over:
        return ranks, stride
    return ranks / layouts.ep, stride * layouts.ep


def _replicated(pipeline: Pipeline) -> list[_ReplicatedParameters]:
    """Return the parameters of each stage, once for every set of axes that replicates some.

    Weights that two pieces of one stage share are held and updated once.
    """
    pieces = pipeline.layouts.program.pieces
    place = {piece.name: index for index, piece in enumerate(pieces)}
    sums: dict[tuple[MeshAxis, ...], tuple[Array, ...]] = {}
    for index, piece in enumerate(pieces):
        updated = sum((k.read_bytes + k.written_bytes for k in piece.update), 0.0)
        updates = sum(k.count for k in piece.update)
        whole = sum((np.asarray(held.elements) for held in piece.parameters), np.asarray(0.0))
        for held in piece.parameters:
            here = pipeline.held[index]
            if held.shared_with:
                here = np.where(pipeline.held[place[held.shared_with]] > 0, 0.0, here)
            over = tuple(axis for axis in held.replicated_over if axis != "tp")
            share = np.asarray(held.elements) / whole
            found = sums.get(over, (np.zeros(1),) * 3)
            sums[over] = tuple(
                before + pipeline.layouts.of_sharding(each)[:, None] * here
                for before, each in zip(
                    found, (held.elements, updated * share, updates * share), strict=True
                )
            )
    return [_ReplicatedParameters(over, *found) for over, found in sums.items()]


def _tied_seconds(
    pipeline: Pipeline,
    workload: Workload,
    table: StrategyTable,
    layout: npt.NDArray[np.int64],
    constants: TimeConstants,
) -> Array:
    """Return the seconds of reducing gradients of weights that two stages share."""
    nodes = slowest_uplink(pipeline.kinds)
    pieces = pipeline.layouts.program.pieces
    place = {piece.name: index for index, piece in enumerate(pieces)}
    stride = np.minimum(pipeline.layouts.width, float(nodes.devices_per_node))
    elements = np.zeros(pipeline.layouts.count)
    for index, piece in enumerate(pieces):
        for held in piece.parameters:
            if held.shared_with:
                owner = pipeline.held[place[held.shared_with]]
                if np.any((pipeline.held[index] > 0) & (owner == 0)):
                    elements += pipeline.layouts.of_sharding(held.elements)
    if not elements.any():
        return np.zeros(len(layout))
    size = elements[layout] * gradient_bytes(workload.precision, table.overlap)
    group = group_of(nodes, size=2.0, stride=stride[layout])
    return collective_seconds("all_reduce", size, group, constants)

"""Seconds of a training step for a table of strategies, part by part.

A step is reduced as follows, and its parts add up to it exactly:

1. every kernel and collective of a piece is priced alone (`roofline`, `communication`);
2. a pass over a piece is their sum, joined with the time that the host needs to launch them (`passes`);
3. a stage is the sum of its pieces, and of what it receives from its neighbours; where it lies on
   several kinds of devices, the slowest sets its pace (`stage_times`);
4. the pipeline is the makespan of its stages (`pipeline`): `micro_batches` times the slowest stage,
   whose parts stand in the breakdown, and a `bubble`;
5. then come adding up gradients, their exchange that no pass hides, the optimizer, weights that two
   stages share, and waiting for the slowest replica;
6. the runtime's factor multiplies all: what its data loading, logging and synchronisation cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.end_of_step import end_of_step
from airflow_training.planning.cost.passes import PARTS
from airflow_training.planning.cost.shardings import layouts, lowered, priced
from airflow_training.planning.cost.stage_times import Pipeline, slowest_uplink
from airflow_training.planning.cost.tables import as_table, distinct, rows_of
from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.program import Number
from airflow_training.planning.view.strategy import Schedule, Strategy

Array = npt.NDArray[np.float64]

TIME_PARTS = (
    *PARTS,
    "pp",
    "bubble",
    "accumulation",
    "dp",
    "tied",
    "optimizer",
    "straggling",
    "runtime",
)


def step_parts(
    workload: Workload,
    cluster: ClusterView,
    table: StrategyTable,
    constants: TimeConstants,
    *,
    schedule: Schedule = "1f1b",
    stage_layers: tuple[int, ...] | None = None,
    stage_devices: Sequence[str] | None = None,
) -> dict[str, Array]:
    """Return the seconds of a step by part, as `TIME_PARTS` names them: arrays, a number per strategy.

    Stages lie on the cluster's groups in their order, or where `stage_devices` says.

    Raises:
        InputError: `stage_devices` names a group that the cluster has not, or too many or few of them.
    """
    if stage_devices is not None:
        names = [group.name for group in cluster.groups]
        for stages in np.unique(table.pp):
            _check_stage_devices(stage_devices, names, int(stages))
        used = tuple(group for group in cluster.groups if group.name in stage_devices)
        cluster = replace(cluster, groups=used)
    parts = {name: np.zeros(len(table.tp)) for name in TIME_PARTS}
    for found in lowered(workload, table):
        passes = [priced(found, nodes, workload.runtime, constants) for nodes in cluster.groups]
        for within, stages, virtual, on_stage in _shapes(cluster, table, found.rows, stage_devices):
            shared, layout = layouts(found, table, within)
            pipeline = Pipeline(
                layouts=shared,
                stages=stages,
                virtual=virtual,
                kinds=cluster.groups,
                passes=passes,
                on_stage=on_stage,
                constants=constants,
                handover_seconds=constants.handover_seconds_of(workload.runtime),
                schedule=schedule,
                stage_layers=stage_layers,
            )
            rows = found.rows[within]
            some = rows_of(table, rows)
            for name, seconds in _seconds(pipeline, workload, some, layout, constants).items():
                parts[name][rows] = seconds
    before = sum((parts[name] for name in TIME_PARTS), np.zeros(len(table.tp)))
    parts["runtime"] = (constants.runtime_factor(workload.runtime) - 1.0) * before
    return parts


def strategy_seconds(
    workload: Workload, cluster: ClusterView, strategy: Strategy, constants: TimeConstants
) -> float:
    """Return the seconds of a step of one strategy."""
    parts = step_parts(
        workload,
        cluster,
        as_table([strategy]),
        constants,
        schedule=strategy.schedule,
        stage_layers=strategy.stage_layers,
        stage_devices=strategy.stage_devices,
    )
    return float(sum(seconds[0] for seconds in parts.values()))


def _seconds(
    pipeline: Pipeline,
    workload: Workload,
    table: StrategyTable,
    layout: npt.NDArray[np.int64],
    constants: TimeConstants,
) -> dict[str, Array]:
    """Return the seconds of the rows of one pipeline by part, without those of the runtime."""
    first = np.unique(layout, return_index=True)[1]
    micro_batches = np.ceil(workload.global_batch / (table.dp * table.micro_batch))
    of_layout, passes = pipeline.parts(micro_batches[first])
    found = {name: seconds[layout] for name, seconds in of_layout.items()}
    found |= end_of_step(
        pipeline,
        workload,
        table,
        layout,
        passes=passes[layout],
        micro_batches=micro_batches,
        constants=constants,
    )
    busy = sum((found[name] for name in (*PARTS, "pp", "bubble", "accumulation")), 0.0)
    found["straggling"] = busy * straggling(pipeline, constants)[layout]
    return found


def straggling(pipeline: Pipeline, constants: TimeConstants) -> Array:
    """Return by what share the slowest replica is slower than the others, for each layout."""
    layouts = pipeline.layouts
    nodes = slowest_uplink(pipeline.kinds)
    return straggling_share(layouts.tp, layouts.cp, layouts.dp, nodes, constants)


def straggling_share(
    tp: Number, cp: Number, dp: Number, nodes: NodeGroup, constants: TimeConstants
) -> Array:
    """Return by what share the slowest of `dp` replicas is slower than the others.

    Replicas run by themselves until they meet to reduce gradients, so the slowest sets the pace: the
    greatest of r normal times is about sqrt(2 ln r) standard deviations above their mean (Cramer 1946,
    section 28.6). Replicas that share nodes count as one.
    """
    within = np.maximum(1.0, nodes.devices_per_node // (tp * cp))
    return np.asarray(constants.straggling * np.sqrt(2.0 * np.log(np.ceil(dp / within))))


def _shapes(
    cluster: ClusterView,
    table: StrategyTable,
    rows: npt.NDArray[np.int64],
    stage_devices: Sequence[str] | None,
) -> Iterator[tuple[npt.NDArray[np.int64], int, int, list[list[int]]]]:
    """Yield rows with one number of stages and virtual stages, and the kinds each stage lies on."""
    pp, virtual = table.pp[rows], table.virtual_stages[rows]
    width = (table.tp * table.cp * table.dp)[rows]
    if len(cluster.groups) == 1:
        width = np.ones_like(width)
    shapes, of_row = distinct([pp, virtual, width])
    for index, (stages, chunks, devices) in enumerate(zip(*shapes, strict=True)):
        within = np.flatnonzero(of_row == index)
        on_stage = kinds_of_stages(cluster, int(stages), int(devices), stage_devices)
        yield within, int(stages), int(chunks), on_stage


def kinds_of_stages(
    cluster: ClusterView, stages: int, width: int, stage_devices: Sequence[str] | None
) -> list[list[int]]:
    """Return the groups of the cluster, by number, that each stage of `width` devices lies on."""
    if len(cluster.groups) == 1:
        return [[0]] * stages
    if stage_devices is not None:
        names = [group.name for group in cluster.groups]
        return [[names.index(name)] for name in stage_devices]
    ends = np.cumsum([group.devices for group in cluster.groups])
    last = len(ends) - 1
    return [
        list(
            range(
                min(last, int(np.searchsorted(ends, stage * width, side="right"))),
                min(last, int(np.searchsorted(ends, (stage + 1) * width - 1, side="right"))) + 1,
            )
        )
        for stage in range(stages)
    ]


def _check_stage_devices(stage_devices: Sequence[str], names: Sequence[str], stages: int) -> None:
    field = "strategy.stage_devices"
    problems = [
        Problem(
            code="not_allowed",
            field=f"{field}[{stage}]",
            value=name,
            message=f"the cluster has no group called '{name}'",
            allowed=tuple(names),
            hint=did_you_mean(name, names),
        )
        for stage, name in enumerate(stage_devices)
        if name not in names
    ]
    if len(stage_devices) != stages:
        message = f"{len(stage_devices)} groups are named for {stages} stages"
        problems.append(
            Problem(
                code="not_allowed",
                field=field,
                value=list(stage_devices),
                message=message,
                allowed=(f"{stages} names of groups",),
            )
        )
    if problems:
        raise InputError(problems=problems)

"""Costs of a table of strategies, and of one strategy with its breakdown and its range."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.memory import TrainingSettings, memory, stage_memory
from airflow_training.planning.cost.step import TIME_PARTS, kinds_of_stages, step_parts
from airflow_training.planning.cost.table_cache import memory_program
from airflow_training.planning.cost.tables import as_table, rows_of
from airflow_training.planning.view.cluster import ClusterView, Device, NodeGroup
from airflow_training.planning.view.plan import (
    BreakdownLine,
    Costs,
    Estimate,
    StrategyTable,
    Workload,
)
from airflow_training.planning.view.program import Program
from airflow_training.planning.view.strategy import Schedule, Strategy

Array = npt.NDArray[np.float64]


def evaluate(
    workload: Workload,
    cluster: ClusterView,
    candidates: StrategyTable,
    constants: TimeConstants = FROZEN,
) -> Costs:
    """Return the prices of a table of strategies, each on the first devices of the cluster.

    Where the cluster has several kinds of nodes, stages lie on them in their order, and the smallest
    device's memory counts.
    """
    time = step_parts(workload, cluster, candidates, constants)
    peak, parts = _memory(workload, cluster, candidates)
    return Costs(
        step_seconds=_total(time),
        memory_bytes=peak,
        time_parts=time,
        memory_parts=parts,
    )


def step_seconds(
    workload: Workload,
    cluster: ClusterView,
    candidates: StrategyTable,
    constants: TimeConstants = FROZEN,
) -> Array:
    """Return the seconds of `evaluate` alone."""
    return _total(step_parts(workload, cluster, candidates, constants))


def memory_bytes(workload: Workload, cluster: ClusterView, candidates: StrategyTable) -> Array:
    """Return the memory of `evaluate` alone."""
    return _memory(workload, cluster, candidates)[0]


def estimate(
    workload: Workload,
    cluster: ClusterView,
    strategy: Strategy,
    constants: TimeConstants = FROZEN,
) -> Estimate:
    """Estimate time and memory of one strategy, with a breakdown and the range of 80 % of runs.

    Raises:
        InputError: the strategy's stages do not fit the model's layers or the cluster's groups.
    """
    table = as_table([strategy])
    workload = replace(workload, global_batch=strategy.global_batch, precision=strategy.precision)
    time = step_parts(
        workload,
        cluster,
        table,
        constants,
        schedule=strategy.schedule,
        stage_layers=strategy.stage_layers,
        stage_devices=strategy.stage_devices,
    )
    seconds = float(_total(time)[0])
    low, high = constants.spread(workload.runtime, [group.device.name for group in cluster.groups])
    devices = _devices_of_stages(cluster, strategy)
    limits = np.array([device.memory_bytes for device in devices])
    stages = stage_memory(
        _held(workload, table, sequence_parallel=strategy.sequence_parallel),
        table,
        _training(workload, strategy.schedule),
        devices=devices,
        stage_layers=strategy.stage_layers,
    )
    each = sum(stages.values(), np.zeros(1))[:, 0]
    tightest = int(np.argmax(each - limits))
    return Estimate(
        strategy=strategy,
        step_seconds=seconds,
        p10=seconds * low,
        p90=seconds * high,
        memory_bytes=float(each[tightest]),
        fits=bool(np.all(each <= limits)),
        time=[BreakdownLine(name=name, value=float(time[name][0])) for name in TIME_PARTS],
        memory=[
            BreakdownLine(name=name, value=float(part[tightest, 0]))
            for name, part in stages.items()
        ],
        stage_memory=[
            (float(used), float(limit)) for used, limit in zip(each, limits, strict=True)
        ],
        price_per_step=_price(cluster, strategy, seconds),
    )


def _total(parts: Mapping[str, Array]) -> Array:
    return np.asarray(sum(parts.values(), np.zeros(1)))


def _training(workload: Workload, schedule: Schedule = "1f1b") -> TrainingSettings:
    return TrainingSettings(
        global_batch=workload.global_batch,
        precision=workload.precision,
        runtime=workload.runtime,
        schedule=schedule,
    )


def _memory(
    workload: Workload, cluster: ClusterView, candidates: StrategyTable
) -> tuple[Array, dict[str, Array]]:
    device = min(_devices(cluster), key=_memory_of)
    peak = np.zeros(len(candidates.tp))
    parts: dict[str, Array] = {}
    for split in np.unique(candidates.sequence_parallel):
        rows = np.flatnonzero(candidates.sequence_parallel == split)
        some = rows_of(candidates, rows)
        program = _held(workload, some, sequence_parallel=bool(split))
        found = memory(program, some, _training(workload), device=device)
        peak[rows] = found.peak_bytes
        for name, values in found.parts.items():
            parts.setdefault(name, np.zeros(len(candidates.tp)))[rows] = values
    return peak, parts


def _held(workload: Workload, table: StrategyTable, *, sequence_parallel: bool) -> Program:
    return memory_program(
        workload.view, table, sequence_parallel=sequence_parallel, precision=workload.precision
    )


def _devices(cluster: ClusterView) -> list[Device]:
    return [group.device for group in cluster.groups]


def _memory_of(device: Device) -> float:
    return device.memory_bytes


def _devices_of_stages(cluster: ClusterView, strategy: Strategy) -> list[Device]:
    """Return the device with the least memory on each stage."""
    on_stage = kinds_of_stages(
        cluster, strategy.pp, strategy.devices // strategy.pp, strategy.stage_devices
    )
    devices = _devices(cluster)
    return [min((devices[kind] for kind in kinds), key=_memory_of) for kinds in on_stage]


def _price(cluster: ClusterView, strategy: Strategy, seconds: float) -> float | None:
    """Return the price of a step at list price; None where a group has none."""
    on_stage = kinds_of_stages(
        cluster, strategy.pp, strategy.devices // strategy.pp, strategy.stage_devices
    )

    def hourly(group: NodeGroup) -> float:
        return group.price_per_device_hour or 0.0

    used = [[cluster.groups[kind] for kind in kinds] for kinds in on_stage]
    if any(group.price_per_device_hour is None for stage in used for group in stage):
        return None
    per_stage = strategy.devices / strategy.pp
    rate = sum(per_stage * np.mean([hourly(group) for group in stage]) for stage in used)
    return float(rate * seconds / 3600.0)

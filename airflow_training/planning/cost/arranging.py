"""Costs of strategies whose stages hold given layers on given kinds of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.memory import TrainingSettings, stage_memory
from airflow_training.planning.cost.step import step_parts
from airflow_training.planning.cost.table_cache import memory_program
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import StrategyTable, Workload

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCosts:
    """Costs of rows that share stages."""

    step_seconds: Array
    """(rows,)"""
    spare_bytes: Array
    """(rows, stages): what each stage leaves free; below 0 it does not fit."""


def arrangement_costs(
    workload: Workload,
    cluster: ClusterView,
    table: StrategyTable,
    *,
    stage_layers: tuple[int, ...],
    stage_devices: tuple[str, ...],
    constants: TimeConstants = FROZEN,
) -> StageCosts:
    """Return the costs of rows with one number of stages, all of them with sequence parallel or none.

    Raises:
        InputError: the layers do not add up.
    """
    parts = step_parts(
        workload,
        cluster,
        table,
        constants,
        stage_layers=stage_layers,
        stage_devices=stage_devices,
    )
    device_of = {group.name: group.device for group in cluster.groups}
    devices = [device_of[name] for name in stage_devices]
    program = memory_program(
        workload.view,
        table,
        sequence_parallel=bool(table.sequence_parallel[0]),
        precision=workload.precision,
    )
    held = stage_memory(
        program,
        table,
        TrainingSettings(
            global_batch=workload.global_batch,
            precision=workload.precision,
            runtime=workload.runtime,
        ),
        devices=devices,
        stage_layers=stage_layers,
    )
    limits = np.array([device.memory_bytes for device in devices])
    total = sum(held.values(), np.zeros(1))
    return StageCosts(
        step_seconds=np.asarray(sum(parts.values(), np.zeros(1))),
        spare_bytes=limits - total.T,
    )

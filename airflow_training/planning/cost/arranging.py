"""Costs of strategies whose stages hold given layers on given kinds of nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.memory import Training, stage_memory
from airflow_training.planning.cost.remembered import held_program
from airflow_training.planning.cost.step import step_parts
from airflow_training.planning.plan import Candidates, Workload

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arranged:
    """Costs of rows that share stages."""

    step_seconds: Array
    """(rows,)"""
    spare_bytes: Array
    """(rows, stages): what each stage leaves free; below 0 it does not fit."""


def arranged(
    workload: Workload,
    cluster: ClusterView,
    table: Candidates,
    *,
    stage_layers: tuple[int, ...],
    stage_devices: tuple[str, ...],
    constants: TimeConstants = FROZEN,
) -> Arranged:
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
    program = held_program(
        workload.view,
        table,
        sequence_parallel=bool(table.sequence_parallel[0]),
        precision=workload.precision,
    )
    held = stage_memory(
        program,
        table,
        Training(
            global_batch=workload.global_batch,
            precision=workload.precision,
            runtime=workload.runtime,
        ),
        devices=devices,
        stage_layers=stage_layers,
    )
    limits = np.array([device.memory_bytes for device in devices])
    total = sum(held.values(), np.zeros(1))
    return Arranged(
        step_seconds=np.asarray(sum(parts.values(), np.zeros(1))),
        spare_bytes=limits - total.T,
    )

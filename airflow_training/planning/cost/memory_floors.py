"""Bytes that a device can never do without, for large tables.

A search cuts by them what need not be counted exactly. They take one stage with most layers, and of it the
states, activations and working memory of its layers; embedding, head, buffers and weights that ZeRO gathers
are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.floors import codes_of
from airflow_training.planning.cost.in_flight import micro_batches_in_flight
from airflow_training.planning.cost.memory_constants import FROZEN, MemoryConstants
from airflow_training.planning.cost.model_states import bytes_per_parameter
from airflow_training.planning.cost.piece_memory import kept_memory
from airflow_training.planning.cost.table_cache import memory_program
from airflow_training.planning.cost.tables import rows_of
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.stages import expanded, layer_span

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerMemoryFloors:
    """What layers keep, for each way to run one."""

    global_batch: int
    layers: int
    codes: Codes
    """A number for each way to run a layer, ascending."""
    least: Floats
    """Weights, gradients and optimizer states, all whole, and the activations of one micro-batch; no
    layer has less: (4, ways)."""
    working: Floats
    """While the layer that takes least of it runs."""
    base_bytes: float
    overhead: float

    def bytes_held(self, rows: StrategyTable) -> Floats:
        """Return the least bytes of the fullest device; the way to run a layer has to be known."""
        way = np.searchsorted(self.codes, codes_of(_memory_alike(rows)))
        fullest, extra = -(-self.layers // rows.pp), self.layers % rows.pp
        in_flight = micro_batches_in_flight(
            "1f1b",
            # where layers do not divide, the first stage has fewer of them unless there are but two
            stage=((extra > 0) & (rows.pp > 2)).astype(np.int64),
            stages=rows.pp,
            virtual_stages=rows.virtual_stages,
            micro_batches=self.global_batch // (rows.dp * rows.micro_batch),
        )
        used = _stage_bytes(self.least, way, rows, layers=fullest, in_flight=in_flight)
        return np.asarray((used + self.working[way]) * (1 + self.overhead) + self.base_bytes)

    def most_layers(self, rows: StrategyTable, memory_bytes: float, in_flight: Floats) -> Floats:
        """Return how many layers a stage of each row can hold at most, activations of so many micro-batches.

        `in_flight` is an array that goes with the rows: (rows,) or (n, rows), as is the answer.
        """
        way = np.searchsorted(self.codes, codes_of(_memory_alike(rows)))
        layer = _stage_bytes(self.least, way, rows, layers=np.ones(1), in_flight=in_flight)
        room = (memory_bytes - self.base_bytes) / (1 + self.overhead) - self.working[way]
        # rounding must not take away a layer that just fits
        return np.asarray(np.floor(np.maximum(room, 0.0) / np.maximum(layer, 1.0) * (1 + 1e-12)))


def memory_floors(
    workload: Workload,
    cluster: ClusterView,
    table: StrategyTable,
    constants: MemoryConstants = FROZEN,
) -> LayerMemoryFloors:
    """Lower bounds on the bytes of strategies that are quick to compute.

    It knows every way to run a layer (its split, micro-batch and recomputation) that a row of the table has.
    """
    table = _memory_alike(table)
    codes, first = np.unique(codes_of(table), return_index=True)
    once = np.ones(len(first), dtype=np.int64)
    ways = replace(rows_of(table, first), pp=once, dp=once, zero=0 * once)
    runtime = constants.runtime(workload.runtime)
    each = bytes_per_parameter(workload.precision, runtime.mixed)
    begin, end = layer_span(workload.view.units)
    pieces = expanded(workload.view.units)[begin:end]
    by_layer = np.zeros((5, len(pieces), len(first)))
    for split in np.unique(ways.sequence_parallel):
        here = np.flatnonzero(ways.sequence_parallel == split)
        some = rows_of(ways, here)
        program = memory_program(
            workload.view, some, sequence_parallel=bool(split), precision=workload.precision
        )
        held = kept_memory(program, some, each)
        whole = np.concatenate([held.states, [held.saved, held.working]])
        by_layer[:, :, here] = whole[:, pieces]
    least = by_layer.min(axis=1)
    contexts = [group.device.context_bytes for group in cluster.groups]
    return LayerMemoryFloors(
        global_batch=workload.global_batch,
        layers=end - begin,
        codes=codes,
        least=least[:4],
        working=least[4],
        base_bytes=min(constants.base_bytes if own is None else own for own in contexts),
        overhead=constants.overhead if runtime.overhead is None else runtime.overhead,
    )


def _stage_bytes(
    layer: Floats, way: Codes, rows: StrategyTable, *, layers: npt.NDArray[Any], in_flight: Floats
) -> Floats:
    """Return states and activations of so many layers; no more devices share than replicas there are."""
    weights, gradients, optimizer, saved = (part[way] for part in layer)
    share = 1.0 / (rows.dp * rows.cp)
    weights *= np.where(rows.zero >= 3, share, 1.0)
    gradients *= np.where(rows.zero >= 2, share, 1.0)
    optimizer *= np.where(rows.zero >= 1, share, 1.0)
    return np.asarray(layers * (weights + gradients + optimizer + saved * in_flight))


def _memory_alike(rows: StrategyTable) -> StrategyTable:
    """Return rows without their overlap, which changes nothing here."""
    return replace(rows, overlap=np.zeros_like(rows.overlap))

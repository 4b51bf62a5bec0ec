"""Seconds that a step can never beat, for large tables.

A search cuts by them what the whole model need not price. They take the makespan, adding up and exchange of
gradients and the wait for the slowest replica from below, and leave out what stages send each other and the optimizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.data_parallel import (
    Replicas,
    accumulation_seconds,
    exchange_seconds,
)
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.cost.shardings import lowered, priced
from airflow_training.planning.cost.step import straggling_share
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE, rows_of
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.lowering import lower
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.program import Sharding
from airflow_training.planning.view.stages import expanded, layer_span

Array = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int64]

_WIDTHS = {
    "sequence_parallel": 2,
    "recompute": len(RECOMPUTE),
    "tp": 1 << 12,
    "cp": 1 << 12,
    "ep": 1 << 12,
    "micro_batch": 1 << 20,
}
"""How many values each column can have: together they fit into 63 bits."""
_ALL = OVERLAP.index("all")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Floors:
    """Seconds of a forward and a backward pass over the units, for each way to run a layer."""

    workload: Workload
    cluster: ClusterView
    constants: TimeConstants
    layers: int
    codes: Codes
    """A number for each way to run a layer, ascending."""
    before: Array
    """Of the units before the layers."""
    least_layer: Array
    all_layers: Array
    after: Array

    def seconds(self, rows: StrategyTable) -> Array:
        """Return the least seconds of a step of each row; its way to run a layer has to be known."""
        way = np.searchsorted(self.codes, codes_of(rows))
        least, layers = self.least_layer[way], self.all_layers[way]
        before, after = self.before[way], self.after[way]
        passes = self.workload.global_batch // (rows.dp * rows.micro_batch)
        base, virtual = self.layers // rows.pp, rows.virtual_stages
        whole = before + layers + after
        last = base * least + after
        fullest = np.maximum(-(-self.layers // rows.pp) * least, layers / rows.pp)
        floor = np.maximum(passes * fullest, passes * (base * least + before))
        # the last stage works through all micro-batches once the first one has come through the others
        floor = np.maximum(floor, whole / virtual + (passes - 1.0 / virtual) * last)
        floor = np.where(rows.pp == 1, passes * whole, floor)
        share, exchange = overheads(self.workload, self.cluster, rows, self.constants)
        return np.asarray(floor * (1.0 + share) + exchange)


def overheads(
    workload: Workload,
    cluster: ClusterView,
    rows: StrategyTable,
    constants: TimeConstants = FROZEN,
) -> tuple[Array, Array]:
    """Lower bounds on the cost of replicas in a step: a share of its passes, and seconds.

    The share is the wait for the slowest replica. The seconds are those of the gradients of an average
    stage: adding them up, and their exchange between the cluster's first nodes behind endless passes. It
    is linear in the number of micro-batches, so two of them are priced for each different split. Where
    experts are split both are left out: which of them ranks share is not known here.
    """
    nodes = cluster.groups[0]
    codes = (rows.zero * len(OVERLAP) + rows.overlap).astype(np.int64)
    for column in (rows.tp, rows.pp, rows.dp, rows.cp):
        codes = codes * (1 << 14) + column
    _, first, of_row = np.unique(codes, return_index=True, return_inverse=True)
    one = rows_of(rows, first)
    replicas = Replicas(
        elements=_layer_elements(workload) / (one.tp * one.pp),
        update_bytes=np.zeros(len(first)),
        precision=workload.precision,
        runtime=workload.runtime,
        group=group_of(
            nodes, size=(one.dp * one.cp).astype(np.float64), stride=one.tp.astype(np.float64)
        ),
        zero=one.zero,
        overlap=one.overlap,
        micro_batches=np.ones(len(first)),
    )
    endless = np.full(len(first), np.inf)
    units, calls = _exchanged_units(workload, one.pp)
    once, twice = (
        exchange_seconds(
            replace(replicas, micro_batches=np.full(len(first), count)),
            forward=endless,
            backward=endless,
            units=units,
            calls=calls,
            constants=constants,
        )
        for count in (1.0, 2.0)
    )
    passes = workload.global_batch // (rows.dp * rows.micro_batch)
    tp, cp, dp = (size.astype(np.float64) for size in (rows.tp, rows.cp, rows.dp))
    share = straggling_share(tp, cp, dp, nodes, constants)
    added = accumulation_seconds(replicas, nodes, constants)[of_row] * (1.0 + share)
    seconds = once[of_row] + (passes - 1) * (twice - once)[of_row] + passes * added
    factor = constants.runtime_factor(workload.runtime)
    return share, np.where(rows.ep == 1, factor * seconds, 0.0)


def _exchanged_units(workload: Workload, stages: Codes) -> tuple[Array, Array]:
    """Return the most and the fewest units that the stage with most parameters can have."""
    begin, end = layer_span(workload.view.units)
    repeats = [unit.repeat for unit in workload.view.units]
    alike = max(repeats) == end - begin
    most = np.full(len(stages), float(sum(repeats)))
    fewest = (end - begin) // stages if alike else np.ones_like(stages)
    return most, np.where(stages == 1, most, fewest)


def floors(
    workload: Workload,
    cluster: ClusterView,
    table: StrategyTable,
    constants: TimeConstants = FROZEN,
) -> Callable[[StrategyTable], Array]:
    """Return a quick function to the least seconds of strategies.

    It knows every way to run a layer (its split, micro-batch, recomputation, overlap) that a row of the
    table has, on the first nodes of the cluster.
    """
    codes, first = np.unique(codes_of(table), return_index=True)
    forward, backward = pass_seconds(workload, cluster, rows_of(table, first), constants)
    units = workload.view.units
    begin, end = layer_span(units)
    place = np.cumsum([0, *(unit.repeat for unit in units[:-1])])
    repeats = np.array([unit.repeat for unit in units])[:, None]
    each = forward + backward
    inside = (place >= begin) & (place < end)
    return _Floors(
        workload=workload,
        cluster=cluster,
        constants=constants,
        layers=end - begin,
        codes=codes,
        before=(each * repeats)[place < begin].sum(axis=0),
        least_layer=each[inside].min(axis=0),
        all_layers=(each * repeats)[inside].sum(axis=0),
        after=(each * repeats)[place >= end].sum(axis=0),
    ).seconds


def _layer_elements(workload: Workload) -> float:
    whole = lower(workload.view, Sharding(precision=workload.precision))
    begin, end = layer_span(whole.pieces)
    units = expanded(whole.pieces)[begin:end]
    each = [sum(float(np.max(held.elements)) for held in p.parameters) for p in whole.pieces]
    return float(np.asarray(each)[units].sum())


def pass_seconds(
    workload: Workload,
    cluster: ClusterView,
    table: StrategyTable,
    constants: TimeConstants = FROZEN,
) -> tuple[Array, Array]:
    """Return the seconds of a forward and a backward pass over each unit: (units, rows) each.

    On the cluster's first nodes, with what the runtime adds; of a unit that is repeated, one.
    """
    forward = np.zeros((len(workload.view.units), len(table.tp)))
    backward = np.zeros_like(forward)
    for found in lowered(workload, table):
        times = priced(found, cluster.groups[0], workload.runtime, constants)
        forward[:, found.rows] = times.forward.sum(axis=0)[:, found.of_row]
        backward[:, found.rows] = times.backward.sum(axis=0)[:, found.of_row]
    factor = constants.runtime_factor(workload.runtime)
    return forward * factor, backward * factor


def codes_of(table: StrategyTable) -> Codes:
    """Return a number for the way each row runs a layer: what `lower` and `passes` look at."""
    code = (table.overlap == _ALL).astype(np.int64)
    for name, values in _WIDTHS.items():
        code = code * values + getattr(table, name).astype(np.int64)
    return np.asarray(code, dtype=np.int64)

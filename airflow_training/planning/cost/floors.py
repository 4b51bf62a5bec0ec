"""Seconds that a step can never beat, for large tables: compute and layer collectives, no more.

A search cuts by them what the whole model need not price. They leave out what stages send each other, the
exchange of gradients and the optimizer, and take the makespan from below, so that they never exceed it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import ClusterView
from airflow_training.planning.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.shardings import lowered, priced
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE, rows_of
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.stages import layer_span

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

    global_batch: int
    layers: int
    codes: Codes
    """A number for each way to run a layer, ascending."""
    before: Array
    """Of the units before the layers."""
    least_layer: Array
    all_layers: Array
    after: Array

    def seconds(self, rows: Candidates) -> Array:
        """Return the least seconds of a step of each row; its way to run a layer has to be known."""
        way = np.searchsorted(self.codes, codes_of(rows))
        least, layers = self.least_layer[way], self.all_layers[way]
        before, after = self.before[way], self.after[way]
        passes = self.global_batch // (rows.dp * rows.micro_batch)
        base, virtual = self.layers // rows.pp, rows.virtual_stages
        whole = before + layers + after
        last = base * least + after
        fullest = np.maximum(-(-self.layers // rows.pp) * least, layers / rows.pp)
        floor = np.maximum(passes * fullest, passes * (base * least + before))
        # the last stage works through all micro-batches once the first one has come through the others
        floor = np.maximum(floor, whole / virtual + (passes - 1.0 / virtual) * last)
        floor = np.where(rows.pp == 1, passes * whole, floor)
        return np.asarray(floor)


def floors(
    workload: Workload,
    cluster: ClusterView,
    table: Candidates,
    constants: TimeConstants = FROZEN,
) -> Callable[[Candidates], Array]:
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
        global_batch=workload.global_batch,
        layers=end - begin,
        codes=codes,
        before=(each * repeats)[place < begin].sum(axis=0),
        least_layer=each[inside].min(axis=0),
        all_layers=(each * repeats)[inside].sum(axis=0),
        after=(each * repeats)[place >= end].sum(axis=0),
    ).seconds


def pass_seconds(
    workload: Workload,
    cluster: ClusterView,
    table: Candidates,
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


def codes_of(table: Candidates) -> Codes:
    """Return a number for the way each row runs a layer: what `lower` and `passes` look at."""
    code = (table.overlap == _ALL).astype(np.int64)
    for name, values in _WIDTHS.items():
        code = code * values + getattr(table, name).astype(np.int64)
    return code

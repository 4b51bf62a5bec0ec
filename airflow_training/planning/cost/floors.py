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
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE
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
    factor: float
    """Of the runtime: it multiplies a step as a whole."""
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
        return np.asarray(floor * self.factor)


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
    nodes = cluster.groups[0]
    codes, first = np.unique(codes_of(table), return_index=True)
    ways = Candidates(
        **{name: getattr(table, name)[first] for name in Candidates.__dataclass_fields__}
    )
    begin, end = layer_span(workload.view.units)
    found = {name: np.zeros(len(codes)) for name in ("before", "least", "layers", "after")}
    for program in lowered(workload, ways):
        times = priced(program, nodes, workload.runtime, constants)
        each = (times.forward + times.backward).sum(axis=0)[:, program.of_row]
        unit, least = 0, np.full(len(program.rows), np.inf)
        for piece, seconds in zip(program.program.pieces, each, strict=True):
            where = "before" if unit < begin else "layers" if unit < end else "after"
            found[where][program.rows] += piece.repeat * seconds
            if where == "layers":
                least = np.minimum(least, seconds)
            unit += piece.repeat
        found["least"][program.rows] = least
    return _Floors(
        global_batch=workload.global_batch,
        factor=constants.runtime_factor(workload.runtime),
        layers=end - begin,
        codes=codes,
        before=found["before"],
        least_layer=found["least"],
        all_layers=found["layers"],
        after=found["after"],
    ).seconds


def codes_of(table: Candidates) -> Codes:
    """Return a number for the way each row runs a layer: what `lower` and `passes` look at."""
    code = (table.overlap == _ALL).astype(np.int64)
    for name, values in _WIDTHS.items():
        code = code * values + getattr(table, name).astype(np.int64)
    return code

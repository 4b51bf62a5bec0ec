"""Which strategies share a lowering of the view, and its prices on one kind of node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.passes import Passes, passes
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE
from airflow_training.planning.group import group_of
from airflow_training.planning.lowering import lower
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.program import Number, Program, Recompute, Sharding

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alike:
    """Strategies whose passes one call prices: what is one value for it, and their rows."""

    sequence_parallel: bool
    recompute: Recompute
    overlapped: bool
    """Collectives inside a layer run beside its kernels."""
    rows: Rows


@dataclass(frozen=True, slots=True)
class Lowered:
    """The shardings of strategies that are alike: arrays of length `count` in the program."""

    program: Program
    count: int
    of_row: Rows
    """The sharding of each row of `Alike.rows`."""


@dataclass(frozen=True, slots=True)
class Layouts:
    """Shardings with a number of replicas each: what the time of a pipeline depends on."""

    program: Program
    sequence_parallel: bool
    sharding: Rows
    """The sharding of each layout."""
    tp: Array
    cp: Array
    ep: Array
    dp: Array

    @property
    def count(self) -> int:
        """Return the number of layouts."""
        return len(self.sharding)

    @property
    def width(self) -> Array:
        """Return the number of devices of a stage."""
        return self.tp * self.cp * self.dp

    def of_sharding(self, number: Number) -> Array:
        """Return a number of the program for each layout."""
        values = np.asarray(number, dtype=np.float64)
        return np.full(self.count, values) if values.ndim == 0 else values[self.sharding]


def alike(table: Candidates) -> Iterator[Alike]:
    """Yield the strategies of a table, grouped by which axes are split at all and how a pass runs."""
    overlapped = table.overlap == OVERLAP.index("all")
    code = table.sequence_parallel.astype(np.int64) * 2 + overlapped
    for column in (table.tp, table.cp, table.ep):
        code = code * 2 + (column > 1)
    code = code * len(RECOMPUTE) + table.recompute
    for value in np.unique(code):
        rows = np.flatnonzero(code == value)
        first = rows[0]
        yield Alike(
            bool(table.sequence_parallel[first]),
            RECOMPUTE[table.recompute[first]],
            bool(overlapped[first]),
            rows,
        )


def lowered(workload: Workload, table: Candidates, same: Alike) -> Lowered:
    """Lower each different sharding of the strategies once; many strategies share one."""
    columns = np.stack([c[same.rows] for c in (table.tp, table.cp, table.ep, table.micro_batch)])
    unique, of_row = np.unique(columns, axis=1, return_inverse=True)
    tp, cp, ep, micro_batch = unique.astype(np.float64)
    sharding = Sharding(
        micro_batch=micro_batch,
        tp=tp,
        cp=cp,
        ep=ep,
        sequence_parallel=same.sequence_parallel,
        precision=workload.precision,
    )
    return Lowered(lower(workload.view, sharding), unique.shape[1], of_row.reshape(-1))


def priced(
    found: Lowered, same: Alike, nodes: NodeGroup, runtime: str, constants: TimeConstants
) -> Passes:
    """Return the seconds of a pass over each piece for each sharding, on one kind of node."""
    sharding = found.program.sharding
    return passes(
        found.program,
        rows=found.count,
        recompute=same.recompute,
        overlapped=same.overlapped,
        nodes=nodes,
        groups={
            "tp": group_of(nodes, size=sharding.tp),
            "cp": group_of(nodes, size=sharding.cp, stride=sharding.tp),
            "ep": group_of(nodes, size=sharding.ep, stride=sharding.tp * sharding.cp),
        },
        host_seconds=constants.host_seconds_of(runtime),
        constants=constants,
    )


def layouts(found: Lowered, same: Alike, table: Candidates, within: Rows) -> tuple[Layouts, Rows]:
    """Return the different layouts of some rows of `same`, and the layout of each of them."""
    rows = same.rows[within]
    keys, of_row = np.unique(
        np.stack([found.of_row[within], table.dp[rows]]), axis=1, return_inverse=True
    )
    sharding, dp = keys
    of_sharding = found.program.sharding
    tp, cp, ep = (
        np.asarray(size, dtype=np.float64)[sharding]
        for size in (of_sharding.tp, of_sharding.cp, of_sharding.ep)
    )
    whole = Layouts(
        found.program, same.sequence_parallel, sharding, tp, cp, ep, dp.astype(np.float64)
    )
    return whole, of_row.reshape(-1)

"""Which strategies share a lowering of the view, and its prices on one kind of node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.passes import Mode, Passes, passes
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE, distinct
from airflow_training.planning.group import group_of
from airflow_training.planning.lowering import lower
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.program import Number, Program, Sharding

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Lowered:
    """Strategies that one lowering covers, as they split the same axes: their different shardings."""

    rows: Rows
    """Of the table."""
    program: Program
    count: int
    """Shardings: the length of the program's arrays."""
    modes: tuple[Mode, ...]
    of_row: Rows
    """The sharding of each of `rows`, counted on from mode to mode."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """Shardings with a number of replicas each: what the time of a pipeline depends on."""

    program: Program
    sequence_parallel: bool
    sharding: Rows
    """The sharding of each layout."""
    passes: Rows
    """Where its passes stand: shardings counted on from mode to mode."""
    tp: Array
    cp: Array
    ep: Array
    dp: Array
    width: Array
    """Devices of a stage."""

    @property
    def count(self) -> int:
        """Return the number of layouts."""
        return len(self.sharding)

    def of_sharding(self, number: Number) -> Array:
        """Return a number of the program for each layout."""
        values = np.asarray(number, dtype=np.float64)
        return np.full(self.count, values) if values.ndim == 0 else values[self.sharding]


def lowered(workload: Workload, table: Candidates) -> Iterator[Lowered]:
    """Lower each different sharding of a table once; many strategies share one."""
    code = table.sequence_parallel.astype(np.int64)
    for column in (table.tp, table.cp, table.ep):
        code = code * 2 + (column > 1)
    for value in np.unique(code):
        yield _lowered(workload, table, np.flatnonzero(code == value))


def _lowered(workload: Workload, table: Candidates, rows: Rows) -> Lowered:
    columns = [column[rows] for column in (table.tp, table.cp, table.ep, table.micro_batch)]
    unique, of_row = distinct(columns)
    tp, cp, ep, micro_batch = (column.astype(np.float64) for column in unique)
    sharding = Sharding(
        micro_batch=micro_batch,
        tp=tp,
        cp=cp,
        ep=ep,
        sequence_parallel=bool(table.sequence_parallel[rows[0]]),
        precision=workload.precision,
    )
    overlapped = table.overlap[rows] == OVERLAP.index("all")
    codes, mode = np.unique(table.recompute[rows] * 2 + overlapped, return_inverse=True)
    count = len(tp)
    return Lowered(
        rows=rows,
        program=lower(workload.view, sharding),
        count=count,
        modes=tuple(Mode(RECOMPUTE[code // 2], bool(code % 2)) for code in codes),
        of_row=mode.reshape(-1) * count + of_row,
    )


def priced(found: Lowered, nodes: NodeGroup, runtime: str, constants: TimeConstants) -> Passes:
    """Return the seconds of a pass over each piece for each sharding, on one kind of node."""
    sharding = found.program.sharding
    return passes(
        found.program,
        found.modes,
        rows=found.count,
        nodes=nodes,
        groups={
            "tp": group_of(nodes, size=sharding.tp),
            "cp": group_of(nodes, size=sharding.cp, stride=sharding.tp),
            "ep": group_of(nodes, size=sharding.ep, stride=sharding.tp * sharding.cp),
        },
        host_seconds=constants.host_seconds_of(runtime),
        constants=constants,
    )


def layouts(found: Lowered, table: Candidates, within: Rows) -> tuple[Layouts, Rows]:
    """Return the different layouts of some of the rows of `found`, and the layout of each of them."""
    rows = found.rows[within]
    (passes_of, dp), of_row = distinct([found.of_row[within], table.dp[rows]])
    sharding = passes_of % found.count
    of_sharding = found.program.sharding
    tp, cp, ep = (
        np.asarray(size, dtype=np.float64)[sharding]
        for size in (of_sharding.tp, of_sharding.cp, of_sharding.ep)
    )
    whole = Layouts(
        program=found.program,
        sequence_parallel=of_sharding.sequence_parallel,
        sharding=sharding,
        passes=passes_of,
        tp=tp,
        cp=cp,
        ep=ep,
        dp=dp.astype(np.float64),
        width=tp * cp * dp,
    )
    return whole, of_row

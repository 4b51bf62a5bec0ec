"""Which strategies share a lowering of the view, and its prices on one kind of node."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.cost.passes import Passes, PassMode, passes
from airflow_training.planning.cost.table_cache import Shardings, codes_of, shardings
from airflow_training.planning.cost.tables import OVERLAP, RECOMPUTE, distinct
from airflow_training.planning.view.cluster import NodeGroup
from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.program import Number, Program

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


MODES = tuple(
    PassMode(recompute, overlapped) for recompute in RECOMPUTE for overlapped in (False, True)
)
"""Passes are priced in all of them, mode after mode: the places that `LoweringGroup.of_row` counts."""
_ALL = OVERLAP.index("all")


@dataclass(frozen=True, slots=True)
class LoweringGroup:
    """Strategies that one lowering covers, as they split the same axes."""

    rows: Rows
    """Of the table."""
    shardings: Shardings
    """Theirs, and maybe others."""
    of_row: Rows
    """Where the passes of each of `rows` stand: its sharding, counted on from mode to mode."""

    @property
    def program(self) -> Program:
        """Return the kernels and transfers of all shardings: sizes are arrays, an entry per sharding."""
        return self.shardings.program

    @property
    def count(self) -> int:
        """Return the number of shardings: the length of the program's arrays."""
        return self.shardings.count


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingTable:
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


def lowered(workload: Workload, table: StrategyTable) -> Iterator[LoweringGroup]:
    """Lower each different sharding of a table once; many strategies share one."""
    code = table.sequence_parallel.astype(np.int64)
    for column in (table.tp, table.cp, table.ep):
        code = code * 2 + (column > 1)
    for value in np.unique(code):
        yield _lowered(workload, table, np.flatnonzero(code == value))


def _lowered(workload: Workload, table: StrategyTable, rows: Rows) -> LoweringGroup:
    codes, place = np.unique(
        codes_of(*(column[rows] for column in (table.tp, table.cp, table.ep, table.micro_batch))),
        return_inverse=True,
    )
    found = shardings(
        workload.view,
        codes,
        sequence_parallel=bool(table.sequence_parallel[rows[0]]),
        precision=workload.precision,
    )
    sharding = np.searchsorted(found.codes, codes)[place]
    mode = table.recompute[rows] * 2 + (table.overlap[rows] == _ALL)
    return LoweringGroup(rows=rows, shardings=found, of_row=mode * found.count + sharding)


def priced(
    found: LoweringGroup, nodes: NodeGroup, runtime: str, constants: TimeConstants
) -> Passes:
    """Return the seconds of a pass over each piece for each sharding, on one kind of node."""
    sharding = found.program.sharding

    def price() -> Passes:
        return passes(
            found.program,
            MODES,
            rows=found.count,
            nodes=nodes,
            groups={
                "tp": group_of(nodes, size=sharding.tp),
                "cp": group_of(nodes, size=sharding.cp, stride=sharding.tp),
                "ep": group_of(nodes, size=sharding.ep, stride=sharding.tp * sharding.cp),
            },
            runtime=runtime,
            constants=constants,
        )

    return found.shardings.passes(nodes, runtime, constants, price)


def layouts(found: LoweringGroup, table: StrategyTable, within: Rows) -> tuple[ShardingTable, Rows]:
    """Return the different layouts of some of the rows of `found`, and the layout of each of them."""
    rows = found.rows[within]
    (passes_of, dp), of_row = distinct([found.of_row[within], table.dp[rows]])
    sharding = passes_of % found.count
    of_sharding = found.program.sharding
    tp, cp, ep = (
        np.asarray(size, dtype=np.float64)[sharding]
        for size in (of_sharding.tp, of_sharding.cp, of_sharding.ep)
    )
    whole = ShardingTable(
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

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
from airflow_training.planning.program import Program, Recompute, Sharding

Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Alike:
    """Strategies that one call of `lower` covers: what is one value for it, and their rows."""

    sequence_parallel: bool
    rows: Rows


@dataclass(frozen=True, slots=True)
class Lowered:
    """The shardings of strategies that are alike: arrays of length `count` in the program."""

    program: Program
    count: int
    of_row: Rows
    """The sharding of each row of `Alike.rows`."""


@dataclass(frozen=True, slots=True)
class Runs:
    """The ways in which a pass over a sharding runs: with what recomputation, hidden behind what."""

    pairs: tuple[tuple[Recompute, bool], ...]
    """Recomputation, and whether layers' own collectives overlap compute; `count` shardings each."""
    of_row: Rows
    """The run of each row of `Alike.rows`, of those of all pairs one after the other."""


def alike(table: Candidates) -> Iterator[Alike]:
    """Yield the strategies of a table, grouped by which axes are split at all."""
    code = table.sequence_parallel.astype(np.int64)
    for column in (table.tp, table.cp, table.ep):
        code = code * 2 + (column > 1)
    for value in np.unique(code):
        rows = np.flatnonzero(code == value)
        yield Alike(bool(table.sequence_parallel[rows[0]]), rows)


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


def runs(table: Candidates, same: Alike, found: Lowered) -> Runs:
    """Return the ways in which passes of the strategies run."""
    hides = table.overlap[same.rows] == OVERLAP.index("all")
    pairs, of_row = np.unique(table.recompute[same.rows] * 2 + hides, return_inverse=True)
    return Runs(
        tuple((RECOMPUTE[pair // 2], bool(pair % 2)) for pair in pairs.tolist()),
        of_row.reshape(-1) * found.count + found.of_row,
    )


def priced(
    found: Lowered, ways: Runs, nodes: NodeGroup, runtime: str, constants: TimeConstants
) -> Passes:
    """Return the seconds of a pass over each piece for each run, on one kind of node."""
    sharding = found.program.sharding
    each = [
        passes(
            found.program,
            rows=found.count,
            recompute=recompute,
            overlap="all" if hides else "none",
            nodes=nodes,
            groups={
                "tp": group_of(nodes, size=sharding.tp),
                "cp": group_of(nodes, size=sharding.cp, stride=sharding.tp),
                "ep": group_of(nodes, size=sharding.ep, stride=sharding.tp * sharding.cp),
            },
            host_seconds=constants.host_seconds_of(runtime),
            constants=constants,
        )
        for recompute, hides in ways.pairs
    ]
    return Passes(
        np.concatenate([one.forward for one in each], axis=2),
        np.concatenate([one.backward for one in each], axis=2),
    )

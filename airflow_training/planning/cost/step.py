"""Seconds of a training step for a table of strategies on equal nodes, part by part.

A step is reduced as follows, and its parts add up to it exactly:

1. every kernel and collective of a piece is priced alone (`roofline`, `communication`);
2. a pass over a piece is their sum, joined with the time that the host needs to launch them (`passes`);
3. a stage is the sum of its pieces, and of what it receives from its neighbours;
4. the pipeline is the makespan of its stages (`pipeline`): `micro_batches` times the slowest stage,
   whose parts stand in the breakdown, and a `bubble`;
5. then come what gradient exchange no pass hides, the optimizer, and tied weights, of the slowest stage;
6. the runtime's factor multiplies all: what its data loading, logging and synchronisation cost.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.computation import ComputationView
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import axis_group, collective_seconds
from airflow_training.planning.cost.data_parallel import (
    Replicas,
    exchange_seconds,
    optimizer_seconds,
)
from airflow_training.planning.cost.passes import PARTS, Passes, passes
from airflow_training.planning.cost.pipeline import makespan
from airflow_training.planning.lowering import lower
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.program import Program, Recompute, Sharding
from airflow_training.planning.stages import boundaries, expanded
from airflow_training.planning.strategy import Overlap, Schedule

Array = npt.NDArray[np.float64]

RECOMPUTE: tuple[Recompute, ...] = ("none", "selective", "full")
OVERLAP: tuple[Overlap, ...] = ("none", "dp", "all", "fsdp-prefetch")
TIME_PARTS = (*PARTS, "pp", "bubble", "dp", "tied", "optimizer", "runtime")


@dataclass(frozen=True, slots=True)
class _Class:
    """Strategies that are lowered in one go: what stays one value, and the rows of the table."""

    sequence_parallel: bool
    recompute: Recompute
    overlap: Overlap
    rows: npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Sharded:
    """One lowering of the view, priced: arrays of shape (..., shardings)."""

    program: Program
    passes: Passes
    index: npt.NDArray[np.int64]
    """The sharding of each row of the class."""


def step_parts(
    workload: Workload,
    nodes: NodeGroup,
    candidates: Candidates,
    constants: TimeConstants,
    *,
    schedule: Schedule = "1f1b",
    stage_layers: Sequence[int] | None = None,
) -> dict[str, Array]:
    """Return the seconds of a step by part, as `TIME_PARTS` names them: arrays, a number per strategy."""
    rows = len(candidates.tp)
    parts = {name: np.zeros(rows) for name in TIME_PARTS}
    for same in _classes(candidates):
        sharded = _price(workload, nodes, candidates, same, constants)
        for shape in _pipelines(candidates, same.rows):
            within = np.flatnonzero(
                (candidates.pp[same.rows] == shape[0])
                & (candidates.virtual_stages[same.rows] == shape[1])
            )
            pipeline = _Pipeline(
                workload, nodes, candidates, constants, same, sharded, within, *shape
            )
            for name, seconds in pipeline.parts(schedule, stage_layers).items():
                parts[name][same.rows[within]] = seconds
    factor = constants.runtime_factor(workload.runtime)
    parts["runtime"] = (factor - 1.0) * sum(parts.values(), np.zeros(rows))
    return parts


def _classes(table: Candidates) -> Iterator[_Class]:
    """Yield the rows that share what `lower` and `passes` take as one value."""
    code = table.sequence_parallel.astype(np.int64)
    for column in (table.tp > 1, table.cp > 1, table.ep > 1):
        code = code * 2 + column
    code = (code * len(RECOMPUTE) + table.recompute) * len(OVERLAP) + table.overlap
    for value in np.unique(code):
        rows = np.flatnonzero(code == value)
        first = rows[0]
        yield _Class(
            bool(table.sequence_parallel[first]),
            RECOMPUTE[table.recompute[first]],
            OVERLAP[table.overlap[first]],
            rows,
        )


def _pipelines(table: Candidates, rows: npt.NDArray[np.int64]) -> list[tuple[int, int]]:
    pairs = np.unique(np.stack([table.pp[rows], table.virtual_stages[rows]]), axis=1)
    return [(int(pp), int(virtual)) for pp, virtual in pairs.T]


def _price(
    workload: Workload,
    nodes: NodeGroup,
    table: Candidates,
    same: _Class,
    constants: TimeConstants,
) -> _Sharded:
    """Lower and price each sharding of the class once; many strategies share one."""
    columns = np.stack([c[same.rows] for c in (table.tp, table.cp, table.ep, table.micro_batch)])
    unique, index = np.unique(columns, axis=1, return_inverse=True)
    tp, cp, ep, micro_batch = unique.astype(np.float64)
    program = lower(
        workload.view,
        Sharding(
            micro_batch=micro_batch,
            tp=tp,
            cp=cp,
            ep=ep,
            sequence_parallel=same.sequence_parallel,
            precision=workload.precision,
        ),
    )
    priced = passes(
        program,
        rows=unique.shape[1],
        recompute=same.recompute,
        overlap=same.overlap,
        nodes=nodes,
        groups={
            "tp": axis_group(tp, 1.0, nodes),
            "cp": axis_group(cp, tp, nodes),
            "ep": axis_group(ep, tp * cp, nodes),
        },
        host_seconds=constants.host_seconds_of(workload.runtime),
        constants=constants,
    )
    return _Sharded(program, priced, index.reshape(-1))


@dataclass(frozen=True, slots=True)
class _Pipeline:
    """The strategies of a class that have one number of stages: rows by stages."""

    workload: Workload
    nodes: NodeGroup
    table: Candidates
    constants: TimeConstants
    same: _Class
    sharded: _Sharded
    within: npt.NDArray[np.int64]
    stages: int
    virtual: int

    def parts(
        self, schedule: Schedule, stage_layers: Sequence[int] | None
    ) -> Mapping[str, Array]:
        pieces = self.sharded.program.pieces
        starts = boundaries(pieces, self.stages * self.virtual, stage_layers)
        held = held_units(pieces_of_units=expanded(pieces), starts=starts, stages=self.stages)
        shardings, row = np.unique(self.sharded.index[self.within], return_inverse=True)
        forward = np.tensordot(self.sharded.passes.forward[:, :, shardings], held, axes=(1, 0))
        backward = np.tensordot(self.sharded.passes.backward[:, :, shardings], held, axes=(1, 0))
        received_forward, received_backward = self._received(starts)
        stage_forward = forward.sum(axis=0)[row] + received_forward
        stage_backward = backward.sum(axis=0)[row] + received_backward
        n = self._micro_batches()
        total = makespan(
            stage_forward,
            stage_backward,
            micro_batches=n,
            virtual_stages=self.virtual,
            schedule=schedule,
        )
        together = stage_forward + stage_backward
        slow = together.argmax(axis=1)
        every = np.arange(len(row))
        found = {
            name: n * (forward[i, row, slow] + backward[i, row, slow])
            for i, name in enumerate(PARTS)
        }
        found["pp"] = n * (received_forward + received_backward)[every, slow]
        found["bubble"] = total - n * together[every, slow]
        found.update(self._exchange(held, shardings, row, stage_forward, stage_backward))
        return found

    def _column(self, column: npt.NDArray[np.int64]) -> Array:
        return column[self.same.rows[self.within]].astype(np.float64)

    def _micro_batches(self) -> Array:
        samples = self._column(self.table.dp) * self._column(self.table.micro_batch)
        return np.asarray(np.ceil(self.workload.global_batch / samples))

    def _received(self, starts: npt.NDArray[np.int64]) -> tuple[Array, Array]:
        """Return the seconds each stage waits for activations and for gradients, per micro-batch.

        Tensor-parallel ranks that hold the same activations send a share each, and gather the rest
        inside the node (Narayanan et al. 2021, section 4.1).
        """
        pieces = self.sharded.program.pieces
        chunks = self.stages * self.virtual
        rows = len(self.within)
        index = self.sharded.index[self.within]
        forward = np.zeros((rows, self.stages))
        backward = np.zeros((rows, self.stages))
        if chunks == 1:
            return forward, backward
        of_unit = expanded(pieces)
        tp = self._column(self.table.tp)
        stride = tp * self._column(self.table.cp) * self._column(self.table.dp)
        split = np.ones_like(tp) if self.same.sequence_parallel else tp
        times: dict[tuple[int, int], Array] = {}
        for chunk in range(1, chunks):
            piece = int(of_unit[starts[chunk] - 1])
            sender = (chunk - 1) % self.stages
            key = (piece, sender)
            if key not in times:
                size = np.broadcast_to(pieces[piece].boundary_bytes, self._shardings())[index]
                times[key] = self._hop(size, split, stride, tp, sender)
            forward[:, chunk % self.stages] += times[key]
            backward[:, sender] += times[key]
        return forward, backward

    def _shardings(self) -> int:
        return self.sharded.passes.forward.shape[2]

    def _hop(self, size: Array, split: Array, stride: Array, tp: Array, sender: int) -> Array:
        """Return the seconds of sending `size` bytes from one stage to the next."""
        per_node = self.nodes.devices_per_node
        crosses = np.where(
            stride >= per_node, True, (sender + 1) * stride % per_node == 0
        ) & (stride * self.stages > per_node)
        pair = np.where(crosses, 1.0, 2.0)
        neighbours = axis_group(2.0, np.where(crosses, per_node, 1.0), self.nodes)
        del pair
        sent = collective_seconds(
            "send_recv", size / split, neighbours, self.nodes, self.constants
        )
        whole = collective_seconds(
            "all_gather", size, axis_group(tp, 1.0, self.nodes), self.nodes, self.constants
        )
        return np.asarray(sent + np.where(split > 1, whole, 0.0))

    def _exchange(
        self, held: Array, shardings: npt.NDArray[np.int64], row: npt.NDArray[np.int64],
        stage_forward: Array, stage_backward: Array,
    ) -> dict[str, Array]:
        return {"dp": np.zeros(len(row)), "tied": np.zeros(len(row)), "optimizer": np.zeros(len(row))}


def held_units(
    *, pieces_of_units: npt.NDArray[np.int64], starts: npt.NDArray[np.int64], stages: int
) -> Array:
    """Return how many units of each piece each stage holds: shape (pieces, stages).

    `starts` are those of the chunks: with virtual stages, device s holds the chunks s, s + stages, ...
    """
    held = np.zeros((int(pieces_of_units[-1]) + 1, stages))
    for chunk in range(len(starts) - 1):
        of = pieces_of_units[starts[chunk] : starts[chunk + 1]]
        np.add.at(held, (of, chunk % stages), 1.0)
    return held

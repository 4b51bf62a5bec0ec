"""From a view and a sharding to the program of one device.

The pattern of a sharding (which of its mesh axes are longer than 1) settles the layouts, the kernels and
the collectives; this is done once per view and pattern. The sizes are then plain arithmetic, on numbers
or on arrays of them.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.partition import Kernel, Move, Task
from airflow_training.planning.view.program import (
    Compute,
    MeshAxis,
    Number,
    Parameters,
    Program,
    ProgramPiece,
    Sharding,
    Transfer,
)
from airflow_training.planning.view.splitting import SplitPattern, SymbolicPiece, split
from airflow_training.planning.view.symbols import Box, Evaluator
from airflow_training.planning.view.weights import SplitParameter

ORDER: tuple[MeshAxis, ...] = ("ep", "cp", "tp")
"""Mesh axes inside a layer, the neighbours last. Data parallelism is the micro-batch itself."""


def lower(view: ComputationView, sharding: Sharding) -> Program:
    """Lower a sharded view to the program of each device: work, memory and transfers of one micro-batch.

    Args:
        view: A forward pass or a whole training step.
        sharding: How a layer is split; its sizes may be arrays of one shape, and then so are the numbers
            of the program. The axes that are 1 everywhere leave no trace in it.

    """
    found = split(view, _pattern(sharding))
    numbers = Evaluator(
        growth=_number(sharding.micro_batch) * _number(sharding.ep) / view.batch,
        axes={axis: _number(getattr(sharding, axis)) for axis in ORDER},
        precision=sharding.precision,
    )
    pieces = tuple(_piece(stretch, numbers) for stretch in found.stretches)
    return Program(name=view.name, sharding=sharding, pieces=pieces, warnings=found.warnings)


def split_parameters(view: ComputationView, sharding: Sharding) -> tuple[SplitParameter, ...]:
    """Return every parameter of a view with the axes that split it; sizes do not matter."""
    return split(view, _pattern(sharding)).parameters


def _pattern(sharding: Sharding) -> SplitPattern:
    on = tuple(axis for axis in ORDER if np.any(np.asarray(getattr(sharding, axis)) > 1))
    return SplitPattern(on, sharding.sequence_parallel and "tp" in on)


def _piece(stretch: SymbolicPiece, numbers: Evaluator) -> ProgramPiece:
    return ProgramPiece(
        name=stretch.unit.name,
        repeat=stretch.unit.repeat,
        work=tuple(_work(task, numbers) for task in stretch.tasks),
        update=tuple(_compute(kernel, numbers) for kernel in stretch.update),
        parameters=tuple(
            Parameters(
                elements=_sum(held.boxes, numbers),
                replicated_over=held.replicated_over,
                shared_with=held.shared_with,
            )
            for held in stretch.parameters
        ),
        saved_bytes={mode: numbers.memory(*parts) for mode, parts in stretch.saved.items()},
        working_bytes=_most([numbers.memory(*parts) for parts in stretch.working]),
        boundary_bytes=numbers.memory(*stretch.boundary),
    )


def _work(task: Task, numbers: Evaluator) -> Compute | Transfer:
    return _transfer(task, numbers) if isinstance(task, Move) else _compute(task, numbers)


def _compute(kernel: Kernel, numbers: Evaluator) -> Compute:
    gemm = None
    if kernel.gemm is not None:
        batch, m, n, k = (numbers.box(box) for box in kernel.gemm)
        gemm = (batch, m, n, k * kernel.depth)
    row_lengths = None
    if kernel.row_lengths is not None:
        left, right, out = (numbers.box(box) for box in kernel.row_lengths)
        row_lengths = (left, right, out)
    return Compute(
        name=kernel.name,
        kind=kernel.kind,
        phase=kernel.phase,
        flops=kernel.flops * numbers.box(kernel.points),
        read_bytes=numbers.memory(*kernel.reads),
        written_bytes=numbers.memory(*kernel.writes),
        gemm=gemm,
        row_lengths=row_lengths,
        dtype=kernel.dtype,
        count=kernel.count,
        recomputed_in=kernel.again,
    )


def _transfer(move: Move, numbers: Evaluator) -> Transfer:
    payload = numbers.memory(*move.payload)
    if move.collective == "send_recv":
        # Round a ring every device passes on all parts but the one that it gets last.
        payload = payload * (numbers.size(move.axis) - 1.0)
    return Transfer(
        name=move.name,
        collective=move.collective,
        axis=move.axis,
        phase=move.phase,
        payload_bytes=payload,
        count=move.count,
        recomputed_in=move.again,
        overlaps=move.overlaps,
    )


def _sum(boxes: Iterable[Box], numbers: Evaluator) -> Number:
    total: Number = 0.0
    for box in boxes:
        total = total + numbers.box(box)
    return total


def _most(values: list[Number]) -> Number:
    most: Number = 0.0
    for value in values:
        most = np.maximum(most, value)
    return most


def _number(value: Number) -> Number:
    return np.asarray(value, dtype=np.float64) if isinstance(value, np.ndarray) else float(value)

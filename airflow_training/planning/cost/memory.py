"""Peak memory of a device: what a program's pieces keep, by stage of the pipeline.

What is kept follows Korthikanti et al. 2022 (activations by recompute mode, micro-batches in flight),
Rajbhandari et al. 2020 (ZeRO) and Zhao et al. 2023 (the units that FSDP gathers).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import get_args

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.in_flight import micro_batches_in_flight
from airflow_training.planning.cost.memory_constants import FROZEN, MemoryConstants, RuntimeMemory
from airflow_training.planning.cost.model_states import bytes_per_parameter
from airflow_training.planning.cost.piece_memory import PieceMemory, kept_memory
from airflow_training.planning.view.cluster import Device
from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.program import Program, ProgramPiece
from airflow_training.planning.view.stages import boundaries, expanded, layer_span
from airflow_training.planning.view.strategy import Overlap, Precision, Schedule

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]

PARTS = (
    "weights",
    "gradients",
    "optimizer",
    "gathered",
    "activations",
    "working",
    "communication",
    "runtime",
    "overhead",
)
"""What the memory of a device goes to: these add up to its peak."""

_PREFETCH = get_args(Overlap).index("fsdp-prefetch")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSettings:
    """What memory depends on besides a program and its split."""

    global_batch: int
    precision: Precision = "bf16"
    runtime: str = "generic"
    schedule: Schedule = "1f1b"
    """Candidates with virtual stages are interleaved all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Bytes on the fullest device, an entry per candidate."""

    peak_bytes: Floats
    parts: Mapping[str, Floats]
    """By the names in `PARTS`."""


def memory(
    program: Program,
    candidates: StrategyTable,
    training: TrainingSettings,
    *,
    device: Device,
    constants: MemoryConstants = FROZEN,
) -> MemoryEstimate:
    """Return the peak memory of each of n candidates on equal devices.

    A candidate fits when its peak is not above the memory of the device.

    Args:
        program: the view, lowered for the candidates: its arrays have an entry for each of them.
        candidates: a table of strategies.
        training: what a step is.
        device: what it runs on.
        constants: fitted ones.

    Raises:
        InputError: a candidate has more stages than the model has layers.
    """
    setting = _StageColumns.of(program, candidates, training, constants)
    n = len(candidates.pp)
    peak = np.zeros(n)
    parts = {name: np.zeros(n) for name in PARTS}
    for stages in map(int, np.unique(candidates.pp)):
        rows = np.flatnonzero(candidates.pp == stages)
        of_rows = setting.of_candidates(rows)
        counts = stage_counts(program.pieces, boundaries(program.pieces, stages))
        # Of stages that hold the same, the first has the most micro-batches in flight.
        for stage in np.unique(counts, axis=0, return_index=True)[1]:
            found = _stage(of_rows, counts[stage], int(stage), stages, device)
            total = sum(found.values(), np.zeros(1))
            fuller = total > peak[rows]
            peak[rows] = np.where(fuller, total, peak[rows])
            for name in PARTS:
                parts[name][rows] = np.where(fuller, found[name], parts[name][rows])
    return MemoryEstimate(peak_bytes=peak, parts=parts)


def stage_memory(
    program: Program,
    candidates: StrategyTable,
    training: TrainingSettings,
    *,
    devices: Sequence[Device],
    stage_layers: Sequence[int] | None = None,
    constants: MemoryConstants = FROZEN,
) -> Mapping[str, Floats]:
    """Bytes on a device of each stage, by the names in `PARTS`: shape (stages, n).

    Args:
        program: the view, lowered for the candidates.
        candidates: a table of n strategies with one number of stages.
        training: what a step is.
        devices: those of each stage.
        stage_layers: layers of each stage; None: as even as they divide.
        constants: fitted ones.

    Raises:
        InputError: the layers cannot be placed on the stages.
    """
    setting = _StageColumns.of(program, candidates, training, constants)
    stages = int(candidates.pp[0])
    counts = stage_counts(program.pieces, boundaries(program.pieces, stages, stage_layers))
    found = [
        _stage(setting, counts[stage], stage, stages, devices[stage]) for stage in range(stages)
    ]
    return {name: np.stack([parts[name] for parts in found]) for name in PARTS}


def stage_counts(pieces: Sequence[ProgramPiece], starts: Counts) -> Counts:
    """Return how many copies of each piece each stage holds, shape (stages, pieces)."""
    units = expanded(pieces)
    return np.stack(
        [np.bincount(units[begin:end], minlength=len(pieces)) for begin, end in pairwise(starts)]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageColumns:
    """What the memory of a stage depends on: the columns have an entry per candidate."""

    table: PieceMemory
    virtual_stages: Counts
    micro_batches: Counts
    replicated: npt.NDArray[np.bool_]
    prefetches: npt.NDArray[np.bool_]
    after_layers: npt.NDArray[np.bool_]
    """By piece: behind the last layer, where a backward pass follows its forward pass at once."""
    schedule: Schedule
    runtime: RuntimeMemory
    constants: MemoryConstants

    @classmethod
    def of(
        cls,
        program: Program,
        candidates: StrategyTable,
        training: TrainingSettings,
        constants: MemoryConstants,
    ) -> _StageColumns:
        runtime = constants.runtime(training.runtime)
        each = bytes_per_parameter(training.precision, runtime.mixed)
        ends = np.cumsum([piece.repeat for piece in program.pieces])
        return cls(
            table=kept_memory(program, candidates, each),
            virtual_stages=candidates.virtual_stages,
            micro_batches=-(-training.global_batch // (candidates.dp * candidates.micro_batch)),
            replicated=candidates.dp * candidates.cp > 1,
            prefetches=candidates.overlap == _PREFETCH,
            after_layers=ends > layer_span(program.pieces)[1],
            schedule=training.schedule,
            runtime=runtime,
            constants=constants,
        )

    def of_candidates(self, rows: Counts) -> _StageColumns:
        return replace(
            self,
            table=self.table.of_candidates(rows),
            virtual_stages=self.virtual_stages[rows],
            micro_batches=self.micro_batches[rows],
            replicated=self.replicated[rows],
            prefetches=self.prefetches[rows],
        )


def _stage(
    setting: _StageColumns, counts: Counts, stage: int, stages: int, device: Device
) -> dict[str, Floats]:
    """Return the parts of one stage that holds `counts` copies of each piece: arrays (n,)."""
    table, runtime = setting.table, setting.runtime
    held = np.flatnonzero(counts)
    weights, gradients, optimizer = table.states_of(counts)
    buckets = np.minimum(runtime.bucket_bytes, gradients) * setting.replicated
    # One tensor on its way in and one on its way out.
    boundaries_bytes = 2.0 * table.boundary.max(axis=0) * (stages > 1)
    parts = {
        "weights": weights,
        "gradients": gradients,
        "optimizer": optimizer,
        "gathered": _gathered(table.whole[held], counts[held], setting.prefetches),
        "activations": _activations(setting, counts, stage, stages),
        "working": table.working[held].max(axis=0),
        "communication": buckets + boundaries_bytes,
    }
    used = sum(parts.values(), np.zeros(1))
    own, context = runtime.overhead, device.context_bytes
    return {
        **parts,
        "runtime": np.full_like(used, setting.constants.base_bytes if context is None else context),
        "overhead": used * (setting.constants.overhead if own is None else own),
    }


def _gathered(whole: Floats, counts: Counts, prefetches: npt.NDArray[np.bool_]) -> Floats:
    """Return the bytes that are whole at once: of the unit that runs and, prefetched, of another."""
    largest = np.sort(np.repeat(whole, np.minimum(counts, 2), axis=0), axis=0)[::-1]
    second = largest[1:2].sum(axis=0)
    whole_at_once: Floats = largest[0] + second * prefetches
    return whole_at_once


def _activations(setting: _StageColumns, counts: Counts, stage: int, stages: int) -> Floats:
    in_flight = micro_batches_in_flight(
        setting.schedule,
        stage=stage,
        stages=stages,
        virtual_stages=setting.virtual_stages,
        micro_batches=setting.micro_batches,
    )
    behind_in_flight = in_flight if setting.schedule == "gpipe" else np.ones_like(in_flight)
    of_layers: Floats = (counts * ~setting.after_layers) @ setting.table.saved
    behind: Floats = (counts * setting.after_layers) @ setting.table.saved
    total: Floats = of_layers * in_flight + behind * behind_in_flight
    return total

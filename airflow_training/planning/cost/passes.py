"""Seconds of one forward and one backward pass over every piece of a program, by what they go into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.communication import collective_seconds, exposed
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.group import RankGroup
from airflow_training.planning.cost.roofline import kernel_seconds
from airflow_training.planning.view.cluster import NodeGroup
from airflow_training.planning.view.computation import Phase
from airflow_training.planning.view.program import (
    Compute,
    MeshAxis,
    Program,
    ProgramPiece,
    Recompute,
    Transfer,
)

Array = npt.NDArray[np.float64]

PARTS = ("compute", "recompute", "launch", "tp", "cp", "ep")


@dataclass(frozen=True, slots=True)
class PassMode:
    """How a pass runs, whatever its sizes."""

    recompute: Recompute
    overlapped: bool
    """Collectives inside a layer run beside its kernels."""


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a pass over each piece: (parts, pieces, rows), parts as in `PARTS`."""

    forward: Array
    backward: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperationTime:
    """A kernel or a collective, and the seconds that it takes in each row."""

    part: str
    phase: Phase
    count: float
    recomputed_in: frozenset[Recompute]
    seconds: Array
    beside_compute: Array
    """What it adds to a pass where collectives run beside kernels."""


def passes(
    program: Program,
    modes: Sequence[PassMode],
    *,
    rows: int,
    nodes: NodeGroup,
    groups: Mapping[MeshAxis, RankGroup],
    runtime: str,
    constants: TimeConstants,
) -> Passes:
    """Return the times of `rows` shardings of a program in each mode, one mode after the other."""
    shape = (len(PARTS), len(program.pieces), len(modes), rows)
    forward, backward = np.zeros(shape), np.zeros(shape)
    host_seconds = constants.host_seconds_of(runtime) * np.where(
        np.asarray(program.sharding.tp) > 1, constants.dispatch_factor_of(runtime), 1.0
    )
    order = 1.0 if nodes.device.is_host else constants.overlap_order
    for index, piece in enumerate(program.pieces):
        priced = _priced(
            piece,
            program,
            rows=rows,
            nodes=nodes,
            groups=groups,
            runtime=runtime,
            constants=constants,
        )
        for place, mode in enumerate(modes):
            here = np.s_[:, index, place]
            launched = _add(priced, mode, forward[here], backward[here])
            _add_launch(forward[here], launched[0] * host_seconds, order)
            _add_launch(backward[here], launched[1] * host_seconds, order)
    flat = (*shape[:2], len(modes) * rows)
    return Passes(forward.reshape(flat), backward.reshape(flat))


def _priced(
    piece: ProgramPiece,
    program: Program,
    *,
    rows: int,
    nodes: NodeGroup,
    groups: Mapping[MeshAxis, RankGroup],
    runtime: str,
    constants: TimeConstants,
) -> list[_OperationTime]:
    kernels = [work for work in piece.work if isinstance(work, Compute)]
    seconds = kernel_seconds(
        kernels,
        rows=rows,
        device=nodes.device,
        precision=program.sharding.precision,
        runtime=runtime,
        constants=constants,
    )
    seconds *= np.array([kernel.count for kernel in kernels])[:, None] / nodes.efficiency
    by_name = {kernel.name: seconds[index] for index, kernel in enumerate(kernels)}
    found = []
    for work in piece.work:
        if isinstance(work, Transfer):
            group = groups[work.axis]
            alone = work.count * collective_seconds(
                work.collective, work.payload_bytes, group, constants
            )
            window = by_name.get(work.overlaps)
            beside = alone if window is None else exposed(alone, window, constants)
        else:
            alone = beside = by_name[work.name]
        found.append(
            _OperationTime(
                part="compute" if isinstance(work, Compute) else work.axis,
                phase=work.phase,
                count=work.count,
                recomputed_in=work.recomputed_in,
                seconds=alone,
                beside_compute=beside,
            )
        )
    return found


def _add(
    works: Sequence[_OperationTime], mode: PassMode, forward: Array, backward: Array
) -> tuple[float, float]:
    """Add works to the parts of both passes; return how many launches each pass has."""
    launched = {"forward": 0.0, "backward": 0.0}
    for work in works:
        seconds = work.beside_compute if mode.overlapped else work.seconds
        part = PARTS.index(work.part)
        (forward if work.phase == "forward" else backward)[part] += seconds
        launched[work.phase] += work.count
        if work.phase == "forward" and mode.recompute in work.recomputed_in:
            backward[PARTS.index("recompute") if work.part == "compute" else part] += seconds
            launched["backward"] += work.count
    return launched["forward"], launched["backward"]


def _add_launch(parts: Array, host: Array, order: float) -> None:
    """Add what the device waits for the host, which launches kernels ahead of it but not without end.

    The norm of that order of the two is near the longer one where it is high, and above it where they are alike: kernels
    take turns being shorter and longer than their launch. 1: the host is the device, and does one after the other.
    """
    device = parts.sum(axis=0)
    together = (device**order + host**order) ** (1.0 / order)
    parts[PARTS.index("launch")] += together - device

"""Seconds of one forward and one backward pass over every piece of a program, by what they go into."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import collective_seconds, exposed
from airflow_training.planning.cost.roofline import kernel_seconds
from airflow_training.planning.group import Group
from airflow_training.planning.program import Compute, MeshAxis, Piece, Program, Recompute, Transfer

Array = npt.NDArray[np.float64]

PARTS = ("compute", "recompute", "launch", "tp", "cp", "ep")


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of a pass over each piece: arrays of shape (parts, pieces, rows), parts as in `PARTS`."""

    forward: Array
    backward: Array

    def gathered(self, pieces: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]) -> Passes:
        return Passes(self.forward[:, pieces][:, :, rows], self.backward[:, pieces][:, :, rows])


def passes(
    program: Program,
    *,
    rows: int,
    recompute: Recompute,
    overlapped: bool,
    nodes: NodeGroup,
    groups: Mapping[MeshAxis, Group],
    host_seconds: float,
    constants: TimeConstants,
) -> Passes:
    """Return the times of `rows` shardings of a program on one kind of node."""
    forward = np.zeros((len(PARTS), len(program.pieces), rows))
    backward = np.zeros_like(forward)
    for index, piece in enumerate(program.pieces):
        counts = {"forward": 0.0, "backward": 0.0}
        priced = _priced(
            piece,
            program,
            rows=rows,
            overlapped=overlapped,
            nodes=nodes,
            groups=groups,
            constants=constants,
        )
        for work, seconds in priced:
            part = "compute" if isinstance(work, Compute) else work.axis
            counts[work.phase] += work.count
            if work.phase == "backward":
                backward[PARTS.index(part), index] += seconds
                continue
            forward[PARTS.index(part), index] += seconds
            if recompute in work.recomputed_in:
                into = "recompute" if part == "compute" else part
                backward[PARTS.index(into), index] += seconds
                counts["backward"] += work.count
        _add_launch(forward[:, index], counts["forward"] * host_seconds, constants)
        _add_launch(backward[:, index], counts["backward"] * host_seconds, constants)
    return Passes(forward, backward)


def _priced(
    piece: Piece,
    program: Program,
    *,
    rows: int,
    overlapped: bool,
    nodes: NodeGroup,
    groups: Mapping[MeshAxis, Group],
    constants: TimeConstants,
) -> Iterator[tuple[Compute | Transfer, Array]]:
    """Yield each kernel and transfer of a piece with the seconds that it adds to its pass."""
    kernels = [work for work in piece.work if isinstance(work, Compute)]
    seconds = kernel_seconds(
        kernels,
        rows=rows,
        device=nodes.device,
        precision=program.sharding.precision,
        constants=constants,
    )
    seconds *= np.array([kernel.count for kernel in kernels])[:, None] / nodes.efficiency
    by_name = {kernel.name: seconds[index] for index, kernel in enumerate(kernels)}
    yield from zip(kernels, seconds, strict=True)
    for work in piece.work:
        if isinstance(work, Transfer):
            moving = work.count * collective_seconds(
                work.collective, work.payload_bytes, groups[work.axis], constants
            )
            if overlapped and work.overlaps in by_name:
                moving = exposed(moving, by_name[work.overlaps], constants)
            yield work, moving


def _add_launch(parts: Array, host: float, constants: TimeConstants) -> None:
    """Add what the device waits for the host, which launches kernels ahead of it but not without end.

    The p-norm of the two is near the longer one, and above it where they are alike: kernels take
    turns being shorter and longer than their launch.
    """
    device = parts.sum(axis=0)
    order = constants.overlap_order
    together = (device**order + host**order) ** (1.0 / order)
    parts[PARTS.index("launch")] += together - device

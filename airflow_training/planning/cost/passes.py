"""Seconds of one forward and one backward pass over every piece of a program, by what they go into."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import AxisGroup, collective_seconds, exposed
from airflow_training.planning.cost.roofline import kernel_seconds
from airflow_training.planning.program import Compute, MeshAxis, Piece, Program, Recompute, Transfer
from airflow_training.planning.strategy import Overlap

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
    overlap: Overlap,
    nodes: NodeGroup,
    groups: Mapping[MeshAxis, AxisGroup],
    host_seconds: float,
    constants: TimeConstants,
) -> Passes:
    """Return the times of `rows` shardings of a program on one kind of node."""
    forward = np.zeros((len(PARTS), len(program.pieces), rows))
    backward = np.zeros_like(forward)
    price = _Pricing(program, overlap, nodes, groups, constants)
    for index, piece in enumerate(program.pieces):
        counts = {"forward": 0.0, "backward": 0.0, "recompute": 0.0}
        hidden: dict[str, npt.ArrayLike] = {}
        for work in piece.work:
            seconds = price.seconds(work, hidden)
            part = "compute" if isinstance(work, Compute) else work.axis
            if work.phase == "forward":
                forward[PARTS.index(part), index] += seconds
                counts["forward"] += work.count
                if recompute in work.recomputed_in:
                    into = "recompute" if part == "compute" else part
                    backward[PARTS.index(into), index] += seconds
                    counts["backward"] += work.count
            elif work.phase == "backward":
                backward[PARTS.index(part), index] += seconds
                counts["backward"] += work.count
        _accumulate(backward, index, piece, nodes, constants)
        _add_launch(forward[:, index], counts["forward"] * host_seconds, constants)
        _add_launch(backward[:, index], counts["backward"] * host_seconds, constants)
    return Passes(forward, backward)


@dataclass(frozen=True, slots=True)
class _Pricing:
    program: Program
    overlap: Overlap
    nodes: NodeGroup
    groups: Mapping[MeshAxis, AxisGroup]
    constants: TimeConstants

    def seconds(self, work: Compute | Transfer, hidden: dict[str, npt.ArrayLike]) -> Array:
        """Return what the work adds to the pass; `hidden` remembers what a transfer can hide behind."""
        if isinstance(work, Compute):
            once = kernel_seconds(
                work,
                device=self.nodes.device,
                precision=self.program.sharding.precision,
                constants=self.constants,
            )
            seconds = np.asarray(once) * work.count / self.nodes.efficiency
            hidden[work.name] = seconds
            return seconds
        seconds = work.count * collective_seconds(
            work.collective, work.payload_bytes, self.groups[work.axis], self.nodes, self.constants
        )
        behind = hidden.get(work.overlaps)
        if behind is None or self.overlap != "all":
            return seconds
        return exposed(seconds, np.asarray(behind), self.constants)


def _accumulate(
    backward: Array, index: int, piece: Piece, nodes: NodeGroup, constants: TimeConstants
) -> None:
    """Add the traffic of adding each micro-batch's weight gradients to those of the step."""
    elements = sum((np.asarray(held.elements) for held in piece.parameters), np.asarray(0.0))
    rate = nodes.device.memory_bandwidth * constants.bandwidth_efficiency * nodes.efficiency
    backward[PARTS.index("compute"), index] += elements * constants.accumulation_bytes / rate


def _add_launch(parts: Array, host: float, constants: TimeConstants) -> None:
    """Add what the device waits for the host, which launches kernels ahead of it but not without end.

    The p-norm of the two is near the longer one, and above it where they are alike: kernels take
    turns being shorter and longer than their launch.
    """
    device = parts.sum(axis=0)
    order = constants.overlap_order
    together = (device**order + host**order) ** (1.0 / order)
    parts[PARTS.index("launch")] += together - device

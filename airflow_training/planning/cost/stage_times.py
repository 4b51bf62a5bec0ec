"""What each stage of a pipeline takes for one micro-batch, and what all stages take together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cost.communication import collective_seconds
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.cost.passes import PARTS, Passes
from airflow_training.planning.cost.pipeline import makespan
from airflow_training.planning.cost.shardings import ShardingTable
from airflow_training.planning.view.cluster import NodeGroup
from airflow_training.planning.view.stages import boundaries, expanded
from airflow_training.planning.view.strategy import Schedule

Array = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Layouts with one number of stages on the same kinds of nodes: a row each, a column per stage."""

    layouts: ShardingTable
    stages: int
    virtual: int
    kinds: Sequence[NodeGroup]
    passes: Sequence[Passes]
    """One for each of `kinds`."""
    on_stage: Sequence[Sequence[int]]
    """The kinds of nodes that each stage lies on; its slowest device sets its pace."""
    constants: TimeConstants
    handover_seconds: float = 0.0
    """What the runtime adds to each tensor that a stage hands on to another node."""
    schedule: Schedule = "1f1b"
    stage_layers: tuple[int, ...] | None = None

    @cached_property
    def starts(self) -> npt.NDArray[np.int64]:
        """Where chunks of the pipeline begin among the units."""
        return _chunks(self._repeats, self.stages, self.virtual, self.stage_layers)[0]

    @cached_property
    def held(self) -> Array:
        """How many units of each piece each stage holds: (pieces, stages)."""
        return _chunks(self._repeats, self.stages, self.virtual, self.stage_layers)[1]

    @property
    def _repeats(self) -> tuple[int, ...]:
        return tuple(piece.repeat for piece in self.layouts.program.pieces)

    @cached_property
    def by_part(self) -> tuple[Array, Array]:
        """Forward and backward seconds of each stage by part: (parts, layouts, stages)."""
        of = self.layouts.passes
        per_kind = [
            (
                np.tensordot(priced.forward[:, :, of], self.held, axes=(1, 0)),
                np.tensordot(priced.backward[:, :, of], self.held, axes=(1, 0)),
            )
            for priced in self.passes
        ]
        if len(per_kind) == 1:
            return per_kind[0]
        forward, backward = (np.empty_like(times) for times in per_kind[0])
        every = np.arange(self.layouts.count)
        for stage, kinds in enumerate(self.on_stage):
            here = [[times[:, :, stage] for times in per_kind[kind]] for kind in kinds]
            pace = np.stack([sum(times.sum(axis=0) for times in both) for both in here])
            slowest = pace.argmax(axis=0)
            for whole, way in ((forward, 0), (backward, 1)):
                whole[:, :, stage] = np.stack([both[way] for both in here])[slowest, :, every].T
        return forward, backward

    @cached_property
    def received(self) -> tuple[Array, Array]:
        """Seconds that each stage waits for activations and for gradients, per micro-batch."""
        chunks = self.stages * self.virtual
        forward = np.zeros((self.layouts.count, self.stages))
        backward = np.zeros_like(forward)
        of_unit = expanded(self.layouts.program.pieces)
        ends = of_unit[self.starts[1:chunks] - 1]
        for piece in np.unique(ends):
            sender = np.flatnonzero(ends == piece) % self.stages
            hops = np.bincount(sender, minlength=self.stages) * self._hops(int(piece))
            backward += hops
            forward += np.roll(hops, 1, axis=1)
        return forward, backward

    def _hops(self, piece: int) -> Array:
        """Return the seconds of handing on what a piece ends with, from each stage to the next.

        Tensor-parallel ranks that hold the same activations send a share each, and gather the rest
        inside the node (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
        """
        layouts = self.layouts
        size = layouts.of_sharding(layouts.program.pieces[piece].boundary_bytes)
        split = np.ones_like(layouts.tp) if layouts.sequence_parallel else layouts.tp
        between = [
            (*self.on_stage[sender], *self.on_stage[(sender + 1) % self.stages])
            for sender in range(self.stages)
        ]
        seconds = np.empty((layouts.count, self.stages))
        for kinds in {tuple(sorted(set(pair))) for pair in between}:
            nodes = slowest_uplink([self.kinds[kind] for kind in kinds])
            gathered = collective_seconds(
                "all_gather", size, group_of(nodes, size=split), self.constants
            )
            inside, outside = (
                gathered
                + collective_seconds(
                    "send_recv",
                    size / split,
                    group_of(nodes, size=2.0, stride=stride),
                    self.constants,
                )
                for stride in (1.0, float(nodes.devices_per_node))
            )
            senders = np.array([set(pair) == set(kinds) for pair in between])
            end = (np.flatnonzero(senders) + 1) * layouts.width[:, None]
            whole = layouts.width[:, None] * self.stages > nodes.devices_per_node
            crosses = (end % nodes.devices_per_node == 0) & whole
            crosses |= layouts.width[:, None] >= nodes.devices_per_node
            seconds[:, senders] = np.where(
                crosses, self.handover_seconds + outside[:, None], inside[:, None]
            )
        return seconds

    @cached_property
    def forward(self) -> Array:
        """Seconds of one forward pass of each stage: (layouts, stages)."""
        return np.asarray(self.by_part[0].sum(axis=0) + self.received[0])

    @cached_property
    def backward(self) -> Array:
        """Seconds of one backward pass of each stage: (layouts, stages)."""
        return np.asarray(self.by_part[1].sum(axis=0) + self.received[1])

    def parts(self, micro_batches: Array) -> tuple[dict[str, Array], Array]:
        """Return the seconds of all passes by part, and how many passes of the slowest stage that is."""
        total = makespan(
            self.forward,
            self.backward,
            micro_batches=micro_batches,
            virtual_stages=self.virtual,
            schedule=self.schedule,
        )
        together = self.forward + self.backward
        every, slow = np.arange(self.layouts.count), together.argmax(axis=1)
        slowest = together[every, slow]
        found = {
            name: micro_batches * sum(times[part, every, slow] for times in self.by_part)
            for part, name in enumerate(PARTS)
        }
        found["pp"] = micro_batches * sum(times[every, slow] for times in self.received)
        found["bubble"] = total - micro_batches * slowest
        return found, total / slowest


@dataclass(frozen=True, slots=True)
class _Copies:
    """What of a piece decides where stages begin."""

    repeat: int


@lru_cache(maxsize=1024)
def _chunks(
    repeats: tuple[int, ...], stages: int, virtual: int, stage_layers: tuple[int, ...] | None
) -> tuple[npt.NDArray[np.int64], Array]:
    """Return where chunks begin, and the copies of each piece that each stage holds."""
    pieces = [_Copies(repeat) for repeat in repeats]
    starts = boundaries(pieces, stages * virtual, stage_layers)
    of_unit = expanded(pieces)
    held = np.zeros((len(pieces), stages))
    for chunk in range(stages * virtual):
        of = of_unit[starts[chunk] : starts[chunk + 1]]
        held[:, chunk % stages] += np.bincount(of, minlength=len(held))
    return starts, held


def slowest_uplink(kinds: Sequence[NodeGroup]) -> NodeGroup:
    """Return the kind of node that sends least to other nodes."""

    def rate(nodes: NodeGroup) -> float:
        return float("inf") if nodes.nic is None else nodes.nic.bandwidth * nodes.nics_per_node

    return min(kinds, key=rate)

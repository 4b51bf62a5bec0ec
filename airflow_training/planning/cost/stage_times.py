"""What each stage of a pipeline takes for one micro-batch, and at the end of a step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.communication import collective_seconds
from airflow_training.planning.cost.data_parallel import (
    Replicas,
    exchange_seconds,
    gradient_bytes,
    optimizer_seconds,
)
from airflow_training.planning.cost.passes import PARTS, Passes
from airflow_training.planning.cost.pipeline import makespan
from airflow_training.planning.cost.shardings import Alike, Lowered
from airflow_training.planning.group import group_of
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.program import MeshAxis
from airflow_training.planning.stages import boundaries, expanded
from airflow_training.planning.strategy import Schedule

Array = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Strategies that are alike, have one number of stages, and lie on the same kinds of nodes.

    Arrays have a row per strategy; those per stage a column per stage.
    """

    workload: Workload
    table: Candidates
    rows: Rows
    """The rows of the table."""
    same: Alike
    found: Lowered
    sharding: Rows
    """The sharding of each strategy."""
    run: Rows
    """The column of `passes` of each strategy."""
    stages: int
    virtual: int
    kinds: Sequence[NodeGroup]
    passes: Sequence[Passes]
    """One for each of `kinds`."""
    on_stage: Sequence[Sequence[int]]
    """The kinds of nodes that each stage lies on; its slowest device sets its pace."""
    constants: TimeConstants
    schedule: Schedule = "1f1b"
    stage_layers: tuple[int, ...] | None = None

    def seconds(self) -> dict[str, Array]:
        """Return the seconds of a step by part, without those of the runtime."""
        forward, backward = self._stage_passes()
        received_forward, received_backward = self._received
        stage_forward = forward.sum(axis=0) + received_forward
        stage_backward = backward.sum(axis=0) + received_backward
        n = self._micro_batches
        total = makespan(
            stage_forward,
            stage_backward,
            micro_batches=n,
            virtual_stages=self.virtual,
            schedule=self.schedule,
        )
        together = stage_forward + stage_backward
        every, slow = np.arange(len(self.rows)), together.argmax(axis=1)
        found = {
            name: n * (forward[i, every, slow] + backward[i, every, slow])
            for i, name in enumerate(PARTS)
        }
        found["pp"] = n * (received_forward + received_backward)[every, slow]
        found["bubble"] = total - n * together[every, slow]
        return found | self._end_of_step(stage_forward, stage_backward)

    def _column(self, column: npt.NDArray[np.int64]) -> Array:
        return column[self.rows].astype(np.float64)

    @cached_property
    def _tp(self) -> Array:
        return self._column(self.table.tp)

    @cached_property
    def _dp(self) -> Array:
        return self._column(self.table.dp)

    @cached_property
    def _cp(self) -> Array:
        return self._column(self.table.cp)

    @cached_property
    def _micro_batches(self) -> Array:
        samples = self._dp * self._column(self.table.micro_batch)
        return np.asarray(np.ceil(self.workload.global_batch / samples))

    @cached_property
    def _starts(self) -> Rows:
        return boundaries(self.found.program.pieces, self.stages * self.virtual, self.stage_layers)

    @cached_property
    def _held(self) -> Array:
        """How many units of each piece each stage holds: (pieces, stages)."""
        of_unit = expanded(self.found.program.pieces)
        chunk = np.repeat(np.arange(self.stages * self.virtual), np.diff(self._starts))
        held = np.zeros((len(self.found.program.pieces), self.stages))
        np.add.at(held, (of_unit, chunk % self.stages), 1.0)
        return held

    def _stage_passes(self) -> tuple[Array, Array]:
        """Return forward and backward seconds of each stage by part: (parts, rows, stages)."""
        used, of_row = np.unique(self.run, return_inverse=True)
        per_kind = [
            tuple(
                np.tensordot(times[:, :, used], self._held, axes=(1, 0))[:, of_row]
                for times in (priced.forward, priced.backward)
            )
            for priced in self.passes
        ]
        if len(per_kind) == 1:
            return per_kind[0][0], per_kind[0][1]
        forward, backward = (np.empty_like(times) for times in per_kind[0])
        for stage, kinds in enumerate(self.on_stage):
            pace = [sum(times[:, :, stage].sum() for times in per_kind[k]) for k in kinds]
            slowest = kinds[int(np.argmax(pace))]
            forward[:, :, stage], backward[:, :, stage] = (
                times[:, :, stage] for times in per_kind[slowest]
            )
        return forward, backward

    def _slowest_way_out(self, kinds: Sequence[int]) -> NodeGroup:
        """Return the kind of node that sends least to other nodes."""

        def rate(kind: int) -> float:
            nic = self.kinds[kind].nic
            return float("inf") if nic is None else nic.bandwidth * self.kinds[kind].nics_per_node

        return self.kinds[min(kinds, key=rate)]

    @cached_property
    def _received(self) -> tuple[Array, Array]:
        """Seconds that each stage waits for activations and for gradients, per micro-batch."""
        forward = np.zeros((len(self.rows), self.stages))
        backward = np.zeros_like(forward)
        of_unit = expanded(self.found.program.pieces)
        chunks = np.arange(1, self.stages * self.virtual)
        senders, receivers = (chunks - 1) % self.stages, chunks % self.stages
        alike: dict[tuple[int, str], list[int]] = {}
        for chunk, sender, receiver in zip(chunks, senders, receivers, strict=True):
            nodes = self._slowest_way_out([*self.on_stage[sender], *self.on_stage[receiver]])
            piece = int(of_unit[self._starts[chunk] - 1])
            alike.setdefault((piece, nodes.name), []).append(int(chunk) - 1)
        for (piece, kind), which in alike.items():
            seconds = self._hops(piece, kind, senders[which])
            np.add.at(forward, (slice(None), receivers[which]), seconds)
            np.add.at(backward, (slice(None), senders[which]), seconds)
        return forward, backward

    def _hops(self, piece: int, kind: str, senders: Rows) -> Array:
        """Return the seconds of handing on what a piece ends with, from these stages to the next ones.

        Tensor-parallel ranks that hold the same activations send a share each, and gather the rest
        inside the node (Narayanan et al. 2021, arXiv 2104.04473, section 4.1).
        """
        nodes = next(nodes for nodes in self.kinds if nodes.name == kind)
        per_node = nodes.devices_per_node
        boundary = self.found.program.pieces[piece].boundary_bytes
        size = np.broadcast_to(boundary, (self.found.count,))[self.sharding]
        split = np.ones_like(self._tp) if self.same.sequence_parallel else self._tp
        inside, outside = (
            collective_seconds(
                "send_recv", size / split, group_of(nodes, size=2.0, stride=apart), self.constants
            )
            for apart in (1.0, float(per_node))
        )
        gathered = collective_seconds(
            "all_gather", size, group_of(nodes, size=split), self.constants
        )
        distance = (self._tp * self._cp * self._dp)[:, None]
        leaves = ((senders + 1) * distance % per_node == 0) & (distance * self.stages > per_node)
        sent = np.where(leaves | (distance >= per_node), outside[:, None], inside[:, None])
        return np.asarray(sent + gathered[:, None])

    def _end_of_step(self, forward: Array, backward: Array) -> dict[str, Array]:
        """Return what the stage with most parameters adds once its passes are done."""
        nodes = self._slowest_way_out(range(len(self.kinds)))
        every = np.arange(len(self.rows))
        found = {name: np.zeros(len(every)) for name in ("dp", "tied", "optimizer")}
        for over, elements, update in self._replicated():
            most = elements.argmax(axis=1)
            ranks, stride = self._replicas(over)
            replicas = Replicas(
                elements=elements[every, most],
                update_bytes=update[every, most],
                precision=self.workload.precision,
                group=group_of(nodes, size=ranks, stride=stride),
                zero=self.table.zero[self.rows],
                micro_batches=self._micro_batches,
            )
            found["dp"] += exchange_seconds(
                replicas,
                forward=forward[every, most],
                backward=backward[every, most],
                overlap=self.table.overlap[self.rows],
                units=self._held.sum(axis=0)[most],
                nodes=nodes,
                constants=self.constants,
            )
            found["optimizer"] += optimizer_seconds(replicas, nodes, self.constants)
        found["tied"] = self._tied_seconds(nodes)
        return found

    def _replicas(self, over: tuple[MeshAxis, ...]) -> tuple[Array, Array]:
        """Return how many ranks hold the same parameters, and how far apart they are."""
        ranks = self._dp * np.where("cp" in over, self._cp, 1.0)
        stride = self._tp * np.where("cp" in over, 1.0, self._cp)
        if "ep" in over:
            return ranks, stride
        ep = self._column(self.table.ep)
        return ranks / ep, stride * ep

    def _replicated(self) -> Iterator[tuple[tuple[MeshAxis, ...], Array, Array]]:
        """Yield parameters of each stage by the axes that replicate them, and bytes of their update.

        Weights that two pieces of one stage share are held and updated once.
        """
        pieces = self.found.program.pieces
        together = self._held[:, :, None] * self._held.T[None]  # (piece, stage, other piece)
        by_name = {piece.name: index for index, piece in enumerate(pieces)}
        stages: dict[tuple[MeshAxis, ...], tuple[Array, Array]] = {}
        for index, piece in enumerate(pieces):
            updated = sum(
                (np.asarray(k.read_bytes) + np.asarray(k.written_bytes) for k in piece.update),
                np.zeros(self.found.count),
            )
            elements = [np.broadcast_to(h.elements, (self.found.count,)) for h in piece.parameters]
            whole = sum(elements, np.zeros(self.found.count))
            for held, count in zip(piece.parameters, elements, strict=True):
                own = self._held[index]
                if held.shared_with:
                    own = np.where(together[index, :, by_name[held.shared_with]] > 0, 0.0, own)
                share = updated * np.divide(count, whole, out=np.zeros_like(count), where=whole > 0)
                axes = tuple(axis for axis in held.replicated_over if axis != "tp")
                sums = stages.setdefault(axes, (np.zeros((self.found.count, self.stages)),) * 2)
                stages[axes] = (
                    sums[0] + count[:, None] * own,
                    sums[1] + share[:, None] * own,
                )
        for axes, (elements_held, bytes_updated) in stages.items():
            yield axes, elements_held[self.sharding], bytes_updated[self.sharding]

    def _tied_seconds(self, nodes: NodeGroup) -> Array:
        """Return the seconds of reducing gradients of weights that two stages share."""
        pieces = self.found.program.pieces
        by_name = {piece.name: index for index, piece in enumerate(pieces)}
        apart = np.minimum(self._tp * self._cp * self._dp, float(nodes.devices_per_node))
        seconds = np.zeros(len(self.rows))
        for index, piece in enumerate(pieces):
            for held in piece.parameters:
                if not held.shared_with:
                    continue
                one, other = self._held[index] > 0, self._held[by_name[held.shared_with]] > 0
                if not np.any(one & ~other):
                    continue
                size = np.broadcast_to(held.elements, (self.found.count,))[self.sharding]
                seconds = seconds + collective_seconds(
                    "all_reduce",
                    size * gradient_bytes(self.workload.precision, self.table.overlap[self.rows]),
                    group_of(nodes, size=2.0, stride=apart),
                    self.constants,
                )
        return seconds

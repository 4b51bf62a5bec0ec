"""Ranks whose group has changed go on: from what they still hold where nothing of it is lost, else from a checkpoint.

A step is done on a rank or it is not: all that ranks exchange comes before the optimizer. So who survives holds the state of
the last step, or of the one before, and whoever is behind or new gets the newer one from a rank that has it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_training.checkpoints import tree
from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.rejoin_decision import Boxes, PeerState
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_boundary import Boundary
from airflow_training.checkpoints.torch_rejoining import agree_on_parts, part_of
from airflow_training.checkpoints.torch_state import NOT_GIVEN, TrainingObjects
from airflow_training.checkpoints.torch_transfer import TreeOutline
from airflow_training.execution.loss_scale import LossScale

if TYPE_CHECKING:
    import torch

__all__ = [
    "HeldState",
    "LiveState",
    "RejoinedTraining",
    "agree",
    "hold_state",
    "watch_boundary",
]

log = logging.getLogger("airflow_training.execution")


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldState:
    """What a rank keeps of a training whose group has changed."""

    saver: Saver
    reached: int
    """Steps that were done."""
    step: int | None = None
    """Those of the state; None: it is not whole."""
    why: str = ""
    """Why it is not."""
    state: TreeOutline | None = None
    """All of it, or the part that this rank has."""
    boxes: Boxes = field(default_factory=dict)
    """Of that part."""
    parts: int = 1
    """In how many the ranks of then split it."""

    def tell(self) -> PeerState:
        """What other ranks have to know of it; its digests are computed here."""
        orders = self.saver.orders
        if self.state is None:
            return PeerState(began=True, why=self.why, orders=orders)
        return PeerState(
            step=self.step,
            sections=self.state.sections,
            header=(len(self.state.header), sha256_of(self.state.header)),
            size=self.state.size,
            part=part_of(self.boxes),
            parts=self.parts,
            began=True,
            orders=orders,
        )


@dataclass(frozen=True, slots=True)
class LiveState:
    """A state to go on from that came from no checkpoint."""

    held: Sequence[TreeOutline]
    """The parts that this rank needs, or all of it in one."""
    mine: bool = False
    """Random numbers are drawn by the number of the step, and not handed on."""

    def state(self) -> Any:
        """Return the tree of the first part."""
        return tree.decode(self.held[0].document, self.held[0].blobs)

    def parts(self) -> Iterator[tuple[Any, Mapping[str, Any]]]:
        """Yield document and blobs of each part."""
        return ((each.document, each.blobs) for each in self.held)


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinedTraining:
    """How a training goes on with the ranks of now."""

    step: int
    """Steps that are done."""
    sources: Sequence[int]
    """The ranks whose state, or parts of it, all go on from; empty: a checkpoint, or the beginning."""
    lost_steps: int
    """Those that this rank had done, and that are done again."""
    moved_bytes: int | None
    """Of the state that ranks got from another one; None: it came from a checkpoint, or is that of the beginning."""
    tells: bool
    """This is the rank that tells of it: the first of those that trained before; nobody does at a first start."""
    parts: int
    """In how many the ranks of now split the state."""


class _SplitBoundary(Boundary):
    """Knows parameters by the optimizer alone: within a step `fully_shard` puts others into the modules."""

    def _parameters(self) -> Iterator[torch.Tensor]:
        for group in self._parts.optimizer.param_groups:
            yield from group["params"]


def watch_boundary(
    modules: Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer,
    *,
    loss_scale: LossScale | None,
    data: Any,
    split: bool,
) -> Boundary:
    """Watch a training, so that its state can be brought back to the end of the last step; `split`: each rank has a part."""
    return (_SplitBoundary if split else Boundary)(
        TrainingObjects(
            model=list(modules),
            optimizer=optimizer,
            scaler=NOT_GIVEN if loss_scale is None else loss_scale,
            data=NOT_GIVEN if data is None else data,
        )
    )


def hold_state(
    state: Mapping[str, Any], *, step: int, saver: Saver, boxes: Boxes, parts: int
) -> HeldState:
    """Copy a state, or a rank's part of one: what was trained may go. The boxes are those of that part, one of so many."""
    shared = {name: section for name, section in state.items() if name != "rng"}
    taken = tree.outline(shared)
    outline = TreeOutline(document=taken.document, blobs=tree.Arena().copy(taken))
    return HeldState(saver=saver, reached=step, step=step, state=outline, boxes=boxes, parts=parts)


def agree(
    held: HeldState | None, *, saver: Saver, wants: Boxes
) -> tuple[LiveState | None, RejoinedTraining]:
    """Find, with all other ranks, what this one goes on from: None for a checkpoint. It comes after `saver.regroup`.

    The steps of the answer are those of a live state; `wants`: the boxes that this rank is to have.
    """
    mine = PeerState(orders=saver.orders) if held is None else held.tell()
    state, boxes = (None, {}) if held is None else (held.state, held.boxes)
    found = agree_on_parts(mine, state, boxes=boxes, wants=wants, saver=saver)
    tells = bool(found.trained) and saver.rank == min(found.trained)
    step = 0 if found.step is None else found.step
    rejoined = RejoinedTraining(
        step=step,
        sources=found.sources,
        lost_steps=0 if held is None else max(0, held.reached - step),
        moved_bytes=None if found.step is None else found.moved_bytes,
        tells=tells,
        parts=found.parts,
    )
    if found.step is None:
        if tells:
            log.warning("all ranks restore the newest checkpoint: %s", found.why)
        return None, rejoined
    kept = state is not None and held is not None and held.step == step
    taken = [*([state] if kept and state is not None else []), *found.arrived]
    if not taken:
        raise ValueError(f"rank {saver.rank} goes on after step {step}, and holds no state")
    return LiveState(taken), rejoined

"""Ranks whose group has changed go on: from what one of them still holds where it is whole, else from a checkpoint.

A step is done on a rank or it is not: all that ranks exchange comes before the optimizer. So who survives holds the state of
the last step, or of the one before, and whoever is behind or new gets the newer one from a rank that has it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_training.checkpoints import tree
from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.rejoin_decision import PeerState, choose_newest
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_boundary import Boundary
from airflow_training.checkpoints.torch_rejoining import agree_on_state
from airflow_training.checkpoints.torch_state import NOT_GIVEN, TrainingObjects
from airflow_training.checkpoints.torch_transfer import TreeOutline
from airflow_training.execution.execution_plan import ExecutionPlan
from airflow_training.execution.loss_scale import LossScale

if TYPE_CHECKING:
    import torch

__all__ = [
    "HeldState",
    "LiveState",
    "RejoinedTraining",
    "agree",
    "hold_state",
    "is_whole",
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

    def tell(self) -> PeerState:
        """What other ranks have to know of it; its digests are computed here."""
        orders = self.saver.orders
        if self.state is None:
            return PeerState(began=True, why=self.why, orders=orders)
        return PeerState(
            step=self.step,
            sections=self.state.sections,
            header=(len(self.state.header), sha256_of(self.state.header)),
            began=True,
            orders=orders,
        )


@dataclass(frozen=True, slots=True)
class LiveState:
    """A state to go on from that came from no checkpoint."""

    document: Any
    blobs: Mapping[str, Any]
    mine: bool = False
    """Random numbers are drawn by the number of the step, and not handed on."""

    def state(self) -> Any:
        """Return the tree."""
        return tree.decode(self.document, self.blobs)

    def parts(self) -> Sequence[tuple[Any, Mapping[str, Any]]]:
        """Return document and blobs of each part: it is whole."""
        return [(self.document, self.blobs)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinedTraining:
    """How a training goes on with the ranks of now."""

    step: int
    """Steps that are done."""
    source: int | None
    """The rank whose state all go on from; None: a checkpoint, or the beginning."""
    lost_steps: int
    """Those that this rank had done, and that are done again."""
    moved_bytes: int | None
    """Of the state that ranks got from another one; None: it came from a checkpoint, or is that of the beginning."""
    tells: bool
    """This is the rank that tells of it: the first of those that trained before; nobody does at a first start."""


def is_whole(plan: ExecutionPlan | None) -> bool:
    """Whether each rank of a plan holds the whole state."""
    return plan is None or plan.is_whole


def watch_boundary(
    modules: Sequence[torch.nn.Module],
    optimizer: torch.optim.Optimizer,
    *,
    loss_scale: LossScale | None,
    data: Any,
) -> Boundary:
    """Watch a training, so that its state can be brought back to the end of the last step."""
    return Boundary(
        TrainingObjects(
            model=list(modules),
            optimizer=optimizer,
            scaler=NOT_GIVEN if loss_scale is None else loss_scale,
            data=NOT_GIVEN if data is None else data,
        )
    )


def hold_state(state: Mapping[str, Any], *, step: int, saver: Saver) -> HeldState:
    """Copy a whole state: what was trained may go."""
    shared = {name: section for name, section in state.items() if name != "rng"}
    taken = tree.outline(shared)
    outline = TreeOutline(document=taken.document, blobs=tree.Arena().copy(taken))
    return HeldState(saver=saver, reached=step, step=step, state=outline)


def agree(held: HeldState | None, *, saver: Saver) -> tuple[LiveState | None, RejoinedTraining]:
    """Find, with all other ranks, what this one goes on from: None for a checkpoint. It comes after `saver.regroup`.

    The steps of the answer are those of a live state.
    """
    mine = PeerState(orders=saver.orders) if held is None else held.tell()
    state = None if held is None else held.state
    found = agree_on_state(mine, state, saver=saver, decide=choose_newest)
    tells = bool(found.trained) and saver.rank == min(found.trained)
    step = 0 if found.step is None else found.step
    rejoined = RejoinedTraining(
        step=step,
        source=found.source,
        lost_steps=0 if held is None else max(0, held.reached - step),
        moved_bytes=None if found.step is None else found.moved_bytes,
        tells=tells,
    )
    if found.step is None:
        if tells:
            log.warning("all ranks restore the newest checkpoint: %s", found.why)
        return None, rejoined
    taken = state if found.arrived is None else found.arrived
    if taken is None:
        raise ValueError(f"rank {saver.rank} goes on after step {step}, and holds no state")
    return LiveState(taken.document, taken.blobs), rejoined

"""A group of PyTorch ranks that was formed again goes on from the state that some of its ranks still hold.

`rejoin_decision` decides, `torch_boundary` brings survivors back to their last step boundary; here all ranks tell each other
what they hold, and those that came new get the state over the network, compared before it is used. The store of
checkpoints is told of the new generation, and none of its state is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch.distributed as dist

from airflow_training.checkpoints import torch_state, tree
from airflow_training.checkpoints.agreement import Agreement, SingleProcessAgreement
from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.instructions import rank_and_world
from airflow_training.checkpoints.rejoin_decision import (
    CopyFromPeer,
    PeerState,
    RestoreFromStore,
    choose,
    newest_orders,
)
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_agreement import TorchAgreement
from airflow_training.checkpoints.torch_boundary import Boundary
from airflow_training.checkpoints.torch_state import TrainingObjects
from airflow_training.checkpoints.torch_transfer import TreeOutline, transfer_state

__all__ = ["RejoinResult", "agree_on_state", "rejoin_ranks"]

log = logging.getLogger("airflow_training.checkpoints")

_BUFFERS = "buffers"
"""The section that ranks may have different, as batch normalisation does: it says nothing about the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RejoinResult:
    """What all ranks hold now."""

    step: int | None
    """Steps that are done; None: the state has to come from the store."""
    trained: Sequence[int]
    """Ranks that cannot begin at step 0 again."""
    source: int | None = None
    """The rank whose state the others go on from."""
    arrived: TreeOutline | None = None
    """What this rank has to take over; None: it holds the state."""
    moved_bytes: int = 0
    """Of the state that ranks got from another one, all of them together."""
    why: str = ""
    """Why nobody goes on from what a rank holds."""


def rejoin_ranks(
    parts: TrainingObjects, saver: Saver, boundary: Boundary, *, allow_pickle: bool = False
) -> RejoinResult:
    """Let every rank have the state that the survivors hold; all ranks call it. See `Checkpointer.rejoin`."""
    (rank, world), agreement = _group_of_now()
    saver.regroup(place=(rank, world), agreement=agreement)
    for item in torch_state.iterate_objects(parts.data):
        if isinstance(item, ResumableSampler):
            item.divide_among(rank=rank, world=world)
    mine, state = _look(parts, saver, boundary)
    result = agree_on_state(mine, state, saver=saver)
    if result.arrived is not None:
        boundary.forget("it was interrupted while it took over the state")
        torch_state.apply(
            parts,
            tree.decode(result.arrived.document, result.arrived.blobs, allow_pickle=allow_pickle),
        )
    if result.step is None and result.trained:
        log.warning("all ranks restore the newest checkpoint: %s", result.why)
    return result


def agree_on_state(
    mine: PeerState,
    state: TreeOutline | None,
    *,
    saver: Saver,
    decide: Callable[[Sequence[PeerState]], CopyFromPeer | RestoreFromStore] = choose,
) -> RejoinResult:
    """Return from where all ranks go on, and what this one takes over; all ranks call it, after `saver.regroup`.

    Args:
        mine: what this rank says of itself.
        state: of this rank, where it holds one.
        saver: whose group is opened for a state that a rank holds.
        decide: where the ranks go on from, as of `rejoin_decision.choose`.

    """
    rank, agreement = saver.rank, saver.agreement
    everyone = [PeerState.from_json(told) for told in agreement.gather(mine.to_json())]
    saver.follow(newest_orders(each.orders for each in everyone))
    trained = [number for number, each in enumerate(everyone) if each.began]
    chosen = decide(everyone)
    if isinstance(chosen, RestoreFromStore):
        return RejoinResult(step=None, trained=trained, why=chosen.why)
    if not saver.take_over(chosen.step):
        why = f"there is a newer one than the state after step {chosen.step} that ranks still hold"
        return RejoinResult(step=None, trained=trained, why=why)
    try:
        arrived = _from_source(
            chosen, everyone[chosen.source], rank=rank, state=state, agreement=agreement
        )
    except ValueError as error:
        return RejoinResult(step=None, trained=trained, why=str(error))
    size = next((each.size for each in (state, arrived) if each is not None), 0)
    return RejoinResult(
        step=chosen.step,
        trained=trained,
        source=chosen.source,
        arrived=arrived,
        moved_bytes=size * len(chosen.newcomers),
    )


def _group_of_now() -> tuple[tuple[int, int], Agreement]:
    if dist.is_available() and dist.is_initialized():
        world = dist.get_world_size()
        return (dist.get_rank(), world), TorchAgreement() if world > 1 else SingleProcessAgreement()
    rank, world = rank_and_world()
    if world > 1:
        raise CheckpointError(
            f"rejoin() needs torch.distributed: rank {rank} of {world} calls init_process_group first"
        )
    return (rank, world), SingleProcessAgreement()


def _look(
    parts: TrainingObjects, saver: Saver, boundary: Boundary
) -> tuple[PeerState, TreeOutline | None]:
    """Go back to the last step boundary; return what this rank holds, and a copy of it to give away."""
    nothing = PeerState(began=boundary.began, orders=saver.orders)
    try:
        step, why = boundary.roll_back()
        if step is None:
            return replace(nothing, why=why), None
        captured = torch_state.capture(parts)
        del captured["rng"]
        document, blobs = saver.copy(captured)
    except CheckpointError as error:  # the others wait for a word of this rank
        return replace(nothing, why=str(error)), None
    if next(tree.shards(document), None) is not None:
        return replace(nothing, why="the state is split over the ranks"), None
    state = TreeOutline(document=document, blobs=blobs)
    holding = replace(
        nothing,
        step=step,
        sections={name: each for name, each in state.sections.items() if name != _BUFFERS},
        header=(len(state.header), sha256_of(state.header)),
    )
    return holding, state


def _from_source(
    chosen: CopyFromPeer,
    given: PeerState,
    *,
    rank: int,
    state: TreeOutline | None,
    agreement: Agreement,
) -> TreeOutline | None:
    """Return the state on a newcomer, None where a rank has it; raises ValueError on all where it came damaged."""
    if not chosen.newcomers:
        log.info("all ranks go on after step %d, which they hold", chosen.step)
        return None
    started = time.monotonic()
    arrived = transfer_state(
        state,
        rank=rank,
        source=chosen.source,
        newcomers=chosen.newcomers,
        header=given.header,
        agreement=agreement,
    )
    if arrived is not None:
        log.info(
            "ranks %s have the state after step %d from rank %d: %.1f MB in %.2f s, and nothing from the store",
            list(chosen.newcomers),
            chosen.step,
            chosen.source,
            arrived.size / 1e6,
            time.monotonic() - started,
        )
    return arrived if rank in chosen.newcomers else None

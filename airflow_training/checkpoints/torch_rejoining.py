"""A group of PyTorch ranks that was formed again goes on from the state that some of its ranks still hold.

`rejoin_decision` decides, `torch_boundary` brings survivors back to their last step boundary; here all ranks tell each other
what they hold, and those that came new get the state over the network, compared before it is used. The store of
checkpoints is told of the new generation, and none of its state is read.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch.distributed as dist

from airflow_training.checkpoints import torch_state, tree
from airflow_training.checkpoints.agreement import Agreement, SingleProcessAgreement
from airflow_training.checkpoints.documents import canonical, sha256_of
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.instructions import rank_and_world
from airflow_training.checkpoints.rejoin_decision import (
    Boxes,
    CopyFromPeer,
    PeerState,
    RestoreFromStore,
    choose,
    choose_parts,
    newest_orders,
    overlaps,
)
from airflow_training.checkpoints.sampler import ResumableSampler
from airflow_training.checkpoints.saver import Saver
from airflow_training.checkpoints.torch_agreement import TorchAgreement
from airflow_training.checkpoints.torch_boundary import Boundary
from airflow_training.checkpoints.torch_state import TrainingObjects
from airflow_training.checkpoints.torch_transfer import TreeOutline, transfer_state

__all__ = ["RejoinResult", "agree_on_parts", "agree_on_state", "part_of", "rejoin_ranks"]

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
    sources: Sequence[int] = ()
    """The ranks whose state, or parts of it, all go on from."""
    arrived: Sequence[TreeOutline] = ()
    """What this rank has to take over, of a split state in parts; empty: it holds the state."""
    moved_bytes: int = 0
    """Of the state that ranks got from another one, all of them together."""
    why: str = ""
    """Why nobody goes on from what a rank holds."""
    parts: int = 1
    """In how many the ranks of now split the state."""


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
    for arrived in result.arrived:  # whole: one
        boundary.forget("it was interrupted while it took over the state")
        torch_state.apply(
            parts, tree.decode(arrived.document, arrived.blobs, allow_pickle=allow_pickle)
        )
    if result.step is None and result.trained:
        log.warning("all ranks restore the newest checkpoint: %s", result.why)
    return result


def agree_on_state(mine: PeerState, state: TreeOutline | None, *, saver: Saver) -> RejoinResult:
    """Return from where all ranks go on, and what this one takes over; all ranks call it, after `saver.regroup`.

    Args:
        mine: what this rank says of itself.
        state: of this rank, where it holds one.
        saver: whose group is opened for a state that a rank holds.

    """
    everyone = _hear(mine, saver)
    chosen = choose(everyone)
    found = _accept(
        chosen if isinstance(chosen, RestoreFromStore) else {"": chosen}, everyone, saver
    )
    if found.step is None or isinstance(chosen, RestoreFromStore):
        return found
    takers = {"": list(chosen.newcomers)}
    return _transfer(found, {"": chosen}, takers, everyone, state=state, saver=saver)


def agree_on_parts(
    mine: PeerState, state: TreeOutline | None, *, boxes: Boxes, wants: Boxes, saver: Saver
) -> RejoinResult:
    """As `agree_on_state`, of a state that ranks may hold parts of: each takes over those that its own part needs.

    Args:
        mine: what this rank says of itself.
        state: the part that it holds.
        boxes: of that part; empty where it holds none.
        wants: the boxes of the part that it is to have.
        saver: whose group is opened for a state that ranks hold.

    """
    everyone = _hear(mine, saver)
    wanted: list[str] = saver.agreement.gather(part_of(wants))
    count = len(set(wanted))
    chosen = choose_parts(everyone)
    found = replace(_accept(chosen, everyone, saver), parts=count)
    if found.step is None or isinstance(chosen, RestoreFromStore):
        return found
    if set(wanted) <= set(chosen):  # split as before: each has one of the parts that are there
        takers = {
            part: [r for r in copy.newcomers if wanted[r] == part] for part, copy in chosen.items()
        }
    else:
        told = saver.agreement.gather({"boxes": boxes, "wants": wants})
        takers = {
            part: [
                rank
                for rank, each in enumerate(told)
                if rank in copy.newcomers and overlaps(told[copy.source]["boxes"], each["wants"])
            ]
            for part, copy in chosen.items()
        }
    return _transfer(found, chosen, takers, everyone, state=state, saver=saver)


def part_of(boxes: Boxes) -> str:
    """Return a name of the part of a state that has these boxes."""
    told = [[name, *map(list, boxes[name])] for name in sorted(boxes)]
    return sha256_of(canonical(told))[:16]


def _hear(mine: PeerState, saver: Saver) -> list[PeerState]:
    """Tell all ranks of this one's state, and hear of theirs."""
    told = saver.agreement.gather(mine.to_json())
    everyone = [PeerState.from_json(each) for each in told]
    saver.follow(newest_orders(each.orders for each in everyone))
    return everyone


def _accept(
    chosen: Mapping[str, CopyFromPeer] | RestoreFromStore,
    everyone: Sequence[PeerState],
    saver: Saver,
) -> RejoinResult:
    """Open the saver's group for what was chosen, unless the store has something newer."""
    trained = [number for number, each in enumerate(everyone) if each.began]
    if isinstance(chosen, RestoreFromStore):
        return RejoinResult(step=None, trained=trained, why=chosen.why)
    [step] = {each.step for each in chosen.values()}
    if not saver.take_over(step):
        why = f"there is a newer one than the state after step {step} that ranks still hold"
        return RejoinResult(step=None, trained=trained, why=why)
    sources = sorted({each.source for each in chosen.values()})
    return RejoinResult(step=step, trained=trained, sources=sources)


def _transfer(
    found: RejoinResult,
    chosen: Mapping[str, CopyFromPeer],
    takers: Mapping[str, Sequence[int]],
    everyone: Sequence[PeerState],
    *,
    state: TreeOutline | None,
    saver: Saver,
) -> RejoinResult:
    """Move each part to who takes it; nothing is taken over where one came damaged. All ranks call it."""
    arrived: list[TreeOutline] = []
    moved = 0
    for part, copy in sorted(chosen.items()):
        if not takers[part]:
            continue
        given = replace(copy, newcomers=tuple(takers[part]))
        header = everyone[copy.source].header
        try:
            came = _from_source(
                given, header, rank=saver.rank, state=state, agreement=saver.agreement
            )
        except ValueError as error:
            return replace(found, step=None, sources=(), arrived=(), why=str(error))
        if came is not None:
            arrived.append(came)
        moved += everyone[copy.source].size * len(takers[part])
    return replace(found, arrived=tuple(arrived), moved_bytes=moved)


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
        size=state.size,
    )
    return holding, state


def _from_source(
    chosen: CopyFromPeer,
    header: tuple[int, str],
    *,
    rank: int,
    state: TreeOutline | None,
    agreement: Agreement,
) -> TreeOutline | None:
    """Return what a newcomer got, None on others; raises ValueError on all where it came damaged."""
    started = time.monotonic()
    arrived = transfer_state(
        state,
        rank=rank,
        source=chosen.source,
        newcomers=chosen.newcomers,
        header=header,
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

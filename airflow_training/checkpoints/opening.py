"""How a process comes to its checkpoint group: as its job says, or as a script says without one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from airflow_training.checkpoints import reading
from airflow_training.checkpoints.agreement import Agreement, SingleProcessAgreement, StoreAgreement
from airflow_training.checkpoints.documents import sha256_of
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.group import Group
from airflow_training.checkpoints.instructions import (
    Instructions,
    by_hand,
    from_environment,
    rank_and_world,
)
from airflow_training.checkpoints.records import Manifest

__all__ = ["agreement_of", "find_start", "open_configured_group", "open_group"]


def open_group(
    root: str | os.PathLike[str] | None = None,
    *,
    rank: int | None = None,
    world: int | None = None,
    agreement: Agreement | None = None,
) -> Group | None:
    """Open the checkpoint group of this process; None where no job has `checkpoint` and no `root` is given.

    For loops that `Checkpointer`, `save` and the callbacks do not fit. `group.base` is what to go on from, None to
    begin; `group.read` gives its content, `group.write` and `group.commit` save. All ranks call it, once.

    Args:
        root: folder or address, where no job says one.
        rank: of this process, as launchers set it where not given.
        world: how many processes write a checkpoint together, as launchers set it where not given.
        agreement: how ranks tell each other; through the store where not given.

    Raises:
        StaleGeneration: a later start of this training has taken over.
        StoreRefused: the store cannot keep checkpoints.
        CheckpointError: the step that the job asks for is not there, or it begins with another training's checkpoint,
            which `restore` can read and a group cannot.
    """
    instructions = from_environment() or (by_hand(os.fspath(root)) if root is not None else None)
    if instructions is None:
        return None
    own_rank, launched = rank_and_world()
    chosen = own_rank if rank is None else rank
    ranks = launched if world is None else world
    group = open_configured_group(
        instructions,
        rank=chosen,
        world=ranks,
        agreement=agreement or agreement_of(instructions, rank=chosen, world=ranks),
    )
    source, manifest = find_start(instructions, group)
    if manifest is not None and source != instructions.root:
        raise CheckpointError(
            f"{instructions.root}: the job begins with step {manifest.step} of {source}, which is another training's:"
            " restore() reads it"
        )
    return group


def agreement_of(instructions: Instructions, *, rank: int, world: int) -> Agreement:
    """Return how ranks reach each other that have nothing but the store."""
    if world == 1:
        return SingleProcessAgreement()
    return StoreAgreement(
        instructions.root, rank=rank, world=world, incarnation=instructions.incarnation
    )


def open_configured_group(
    instructions: Instructions, *, rank: int, world: int, agreement: Agreement, deep: bool = True
) -> Group:
    """Open the group with all that the controller said; not `deep` takes the newest unread, see `Group.open`."""
    return Group.open(
        instructions.root,
        rank=rank,
        world=world,
        incarnation=instructions.incarnation,
        order=instructions.order,
        agreement=agreement,
        keep=instructions.keep,
        keep_every=instructions.keep_every,
        resume=not instructions.fresh,
        not_after=instructions.not_after if deep else None,
        deep=deep,
        code=_code_digest(),
        environment=instructions.environment,
    )


def find_start(instructions: Instructions, group: Group) -> tuple[str, Manifest | None]:
    """The manifest to resume from and the root it lies under: the group's own, else another training's, else nothing.

    Raises CheckpointError where a user asked for a step that is not there.
    """
    root, manifest = instructions.root, group.base
    if manifest is None and instructions.initial is not None:
        root = instructions.initial["uri"]
        manifest = reading.find(
            root, step=instructions.initial["step"], digest=instructions.initial["digest"]
        )
    if instructions.exactly and (manifest is None or manifest.step != instructions.not_after):
        raise CheckpointError(
            f"{root}: step {instructions.not_after} is asked for, and is not there or not whole;"
            f" there is {'none before it' if manifest is None else f'step {manifest.step}'}"
        )
    return root, manifest


def _code_digest() -> str:
    """Return the digest of the script that runs, empty where there is none."""
    script = getattr(sys.modules.get("__main__"), "__file__", None)
    try:
        return sha256_of(Path(script).read_bytes()) if script else ""
    except OSError:
        return ""

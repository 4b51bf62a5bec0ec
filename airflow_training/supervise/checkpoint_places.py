"""Where the checkpoints of a run lie, and which of them are whole. Blocks on the object store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_training.checkpoints import reading
from airflow_training.documents.resolved_blocks import CheckpointReference

__all__ = ["CheckpointRoot", "has_saves", "newest_valid", "roots_below", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointRoot:
    """Where one group of processes keeps its checkpoints."""

    uri: str
    lineage: int
    """How often training had been begun anew before."""
    instance: str
    """`worker-0` where each instance has checkpoints of its own, else empty."""


def roots_below(address: str) -> list[CheckpointRoot]:
    """Return every root below the address of a run, the newest lineage first.

    Raises OSError or CheckpointError where the object store does not answer.
    """
    found = []
    for uri in reading.lineages(address):
        lineage, _, instance = uri.removeprefix(address).strip("/").partition("/")
        if lineage.isdigit():
            found.append(CheckpointRoot(uri=uri, lineage=int(lineage), instance=instance))
    return sorted(found, key=lambda root: (-root.lineage, root.instance))


def newest_valid(
    roots: Sequence[CheckpointRoot], *, step: int | None = None
) -> tuple[CheckpointReference | None, Sequence[str]]:
    """Return the newest checkpoint that is whole, in the first root that has one, and what was passed over.

    `step`: of this step only. Every byte of it was read and compared. Raises as `roots_below`.
    """
    passed_over: list[str] = []
    for root in roots:
        manifest, rejected = reading.newest_and_rejected(root.uri, not_after=step)
        passed_over += [
            why if of is None else f"step {of} is damaged: {why}" for of, why in rejected
        ]
        if manifest is not None and step in (None, manifest.step):
            reference = reading.reference(root.uri, manifest)
            return CheckpointReference.from_document(reference), passed_over
    return None, passed_over


def has_saves(root: CheckpointRoot) -> bool:
    """Return whether a checkpoint was committed there, also one that is damaged by now. Raises as `roots_below`."""
    return bool(reading.damaged(root.uri)) or any(
        entry.state in ("committed", "bad") for entry in reading.history(root.uri)
    )


def whole(reference: CheckpointReference) -> bool:
    """Return whether every byte of the checkpoint that is named is as it was committed.

    Raises OSError or CheckpointError where it is not there, or the object store does not answer.
    """
    uri, step = reference.uri, reference.step
    reading.find(uri, step=step, digest=reference.digest)
    return all(each.state == "committed" for each in reading.verify(uri, step))

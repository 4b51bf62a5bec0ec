"""Where the checkpoints of a run lie, and which of them are whole. Blocks on the object store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.checkpoints import reading
from airflow_training.control.recovery import run_address
from airflow_training.frameworks.ranks import chief_role
from airflow_training.frameworks.render import InstancePlace, Rendering
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.supervise.rendering import checkpoint_uri, expected_addresses

__all__ = ["Root", "address_of", "newest_whole", "roots_below", "whole"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Root:
    """Where one group of processes keeps its checkpoints."""

    uri: str
    lineage: int
    """How often training had been begun anew before."""
    instance: str
    """`worker-0` where each instance has checkpoints of its own, else empty."""


def address_of(job: ResolvedJob, run: RunRef) -> str:
    """Return the address below which all checkpoints of a run lie; the job must have `checkpoint`.

    Raises InputError for a `checkpoint.uri` that cannot be rendered.
    """
    rendering = Rendering(
        job=job,
        place=InstancePlace(role=chief_role(job), index=0),
        run_id=str(job.variables.get("run_id") or run.uid),
        prefix=run.prefix,
        addresses=expected_addresses(job, run.prefix),
        replicas={role.name: role.replicas for role in job.roles},
    )
    uri = checkpoint_uri(job, rendering)
    return run_address(uri, run_id=rendering.run_id, run_uid=run.uid)


def roots_below(address: str) -> list[Root]:
    """Return every root below the address of a run, the newest lineage first.

    Raises OSError or CheckpointError where the object store does not answer.
    """
    found = []
    for uri in reading.lineages(address):
        lineage, _, instance = uri.removeprefix(address).strip("/").partition("/")
        if lineage.isdigit():
            found.append(Root(uri=uri, lineage=int(lineage), instance=instance))
    return sorted(found, key=lambda root: (-root.lineage, root.instance))


def newest_whole(roots: Sequence[Root], *, step: int | None = None) -> dict[str, Any] | None:
    """Return the reference of the newest checkpoint that is whole, in the first root that has one.

    `step`: of this step only. Every byte of it was read and compared. Raises as `roots_below`.
    """
    for root in roots:
        manifest = reading.newest(root.uri, not_after=step, deep=True)
        if manifest is not None and step in (None, manifest.step):
            return reading.reference(root.uri, manifest)
    return None


def whole(reference: Mapping[str, Any]) -> bool:
    """Return whether every byte of the checkpoint that is named is as it was committed.

    Raises OSError or CheckpointError where it is not there, or the object store does not answer.
    """
    uri, step = reference["uri"], reference["step"]
    reading.find(uri, step=step, digest=reference["digest"])
    return all(each.state == "committed" for each in reading.verify(uri, step))

"""Whether a checkpoint can be gone on from: each rank checks its share, and what one finds counts for all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.checkpoints.errors import BadCheckpoint, CheckpointError
from airflow_training.checkpoints.keys import SaveId
from airflow_training.checkpoints.records import Manifest, ParentCheckpoint
from airflow_training.checkpoints.store import ObjectStore
from airflow_training.checkpoints.verifying import read_manifest, verify

__all__ = ["Finding", "check_share", "complaints_of"]

Finding = Mapping[str, str]
"""`bad`: why the checkpoint is; `failed`: why the rank cannot tell; empty where its share is whole. JSON."""


def check_share(
    store: ObjectStore, base: ParentCheckpoint, *, rank: int, world: int, deep: bool
) -> tuple[Manifest | None, Finding]:
    """Return the manifest, and what `rank` of `world` found wrong with its share of the checkpoint.

    `deep`: reads all of it, and not only the sizes.
    """
    try:
        manifest = read_manifest(store, SaveId(base.step, base.generation))
        verify(store, manifest, ranks=range(rank, manifest.world, world), deep=deep)
    except FileNotFoundError:
        return None, {"bad": "its manifest is gone"}
    except BadCheckpoint as error:
        return None, {"bad": str(error)}
    except (CheckpointError, OSError) as error:
        return None, {"failed": str(error)}
    if manifest.digest != base.digest:
        return None, {"bad": "this rank sees another manifest than rank 0"}
    return manifest, {}


def complaints_of(findings: Sequence[Finding]) -> list[str]:
    """Return why a checkpoint is bad, from what each rank found.

    Raises:
        CheckpointError: a rank cannot tell, which is an error for all.
    """
    for rank, finding in enumerate(findings):
        if "failed" in finding:
            raise CheckpointError(f"rank {rank} cannot verify a checkpoint: {finding['failed']}")
    return [f"rank {rank}: {each['bad']}" for rank, each in enumerate(findings) if "bad" in each]

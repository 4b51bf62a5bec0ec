"""A checkpoint as one plain file that other programs read: tensors whole again from the parts of all ranks.

Everything is in memory once, as one process that loads the model would have it.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_training.checkpoints import reading, tree
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.records import Manifest

__all__ = ["whole_state", "write_safetensors", "write_torch"]


def whole_state(
    root: str, manifest: Manifest, *, sections: Sequence[str] | None = None
) -> dict[str, Any]:
    """Return the state that all ranks saved together as one tree; tensors on the CPU.

    What is not split over ranks is that of rank 0. `sections`: keys of the state to return, all by default.

    Raises:
        BadCheckpoint: something of it is not what was written.
        CheckpointError: there is no such section, ranks hold different models, or torch is not installed.
    """
    document, blobs = reading.read(root, manifest, 0)
    if not isinstance(document, dict):
        raise CheckpointError(f"{root}: the state of step {manifest.step} has no sections")
    chosen = list(document) if sections is None else list(sections)
    missing = [name for name in chosen if name not in document]
    if missing:
        raise CheckpointError(
            f"{root}: the state has no {', '.join(missing)}; it has {', '.join(sorted(document))}: export all"
        )
    mine = {name: document[name] for name in chosen}
    _refuse_stages(root, manifest, mine)
    try:
        state: dict[str, Any] = tree.decode(mine, blobs)
        if any(tree.shards(mine)):
            _make_whole(state, mine, root, manifest)
    except ImportError as error:
        raise CheckpointError(
            f"the state of step {manifest.step} needs {error.name} to be read: pip install {error.name}"
        ) from error
    return state

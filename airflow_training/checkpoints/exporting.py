"""A checkpoint as one plain file that other programs read: tensors whole again from the parts of all ranks.

Everything is in memory once, as in one process that loads the model. Imports torch and safetensors inside
functions only.
"""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_training.checkpoints import reading, resharding, tree
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.records import Manifest

__all__ = ["full_model", "full_state", "write_safetensors", "write_torch"]

Tree = Any


def full_model(root: str, manifest: Manifest) -> dict[str, Tree]:
    """Return parameters and buffers of the model by name, as its own `state_dict` has them.

    Raises as `full_state`, and CheckpointError where the state has no model.
    """
    state = full_state(root, manifest, sections=("buffers", "model"))
    model = state.get("model")
    if not isinstance(model, dict):
        raise CheckpointError(
            f"the state of step {manifest.step} has no part called model: export all of it"
        )
    return _joined(model, state.get("buffers", {}).get("model", {}))


def full_state(
    root: str, manifest: Manifest, *, sections: Collection[str] | None = None
) -> dict[str, Tree]:
    """Return the state that all ranks saved together as one tree; tensors on the CPU.

    What is not split over ranks is that of rank 0. `sections`: only these of its keys, where it has them.

    Raises:
        BadCheckpoint: something of it is not what was written.
        CheckpointError: ranks hold different models, or a library that its tensors need is not there.
    """
    document, blobs = reading.read(root, manifest, 0)
    if manifest.world > 1:
        last, _ = reading.read(root, manifest, manifest.world - 1)
        if _outline(_sections(document, ("model",))) != _outline(_sections(last, ("model",))):
            raise CheckpointError(
                f"the ranks of step {manifest.step} hold different models, as stages of a pipeline do:"
                " they cannot be put together without the script"
            )
    if sections is not None:
        document = _sections(document, sections)
    try:
        state = tree.decode(document, blobs)
    except ImportError as error:
        raise CheckpointError(f"to read this state: pip install {error.name}") from error
    wholes = {path: SimpleNamespace(shape=tuple(e["whole"])) for path, e in tree.shards(document)}
    wanted = resharding.fit_state(state, wholes)
    if wanted:
        parts = (reading.read(root, manifest, rank) for rank in range(manifest.world))
        resharding.fill_state(wanted, parts)
    return state if isinstance(state, dict) else {"state": state}


def write_safetensors(state: Mapping[str, Tree], file: Path, *, about: Mapping[str, Any]) -> None:
    """Write all tensors under the path that they have in the state, joined by dots.

    What is no tensor goes into the header as JSON under `rest`, with `about`.
    """
    tensors: dict[str, Any] = {}
    rest: dict[str, Any] = {}
    for name, value in _leaves(state, ""):
        if name in tensors or name in rest:
            raise CheckpointError(f"two parts of the state are called {name}")
        if hasattr(value, "dtype") and getattr(value, "shape", None) is not None:
            tensors[name] = value
        else:
            rest[name] = value
    header = {key: str(value) for key, value in about.items()}
    if rest:
        header["rest"] = json.dumps(rest, default=str)
    try:
        if any(_is_torch(value) for value in tensors.values()):
            from safetensors import torch as library

            tensors = {name: _as_torch(value).contiguous() for name, value in tensors.items()}
            header["format"] = "pt"  # some loaders want to know whose names these are
        else:
            from safetensors import numpy as library  # type: ignore[no-redef]  # has the same function
    except ImportError as error:
        raise CheckpointError(f"to write this format: pip install {error.name}") from error
    _put(file, lambda path: library.save_file(tensors, path, metadata=header))


def write_torch(state: Mapping[str, Tree], file: Path) -> None:
    """Write a file from which `torch.load(file, weights_only=True)` returns the state."""
    try:
        import torch
    except ImportError as error:
        raise CheckpointError(f"to write this format: pip install {error.name}") from error
    plain = _with_tensors(state)
    _put(file, lambda path: torch.save(plain, path))


def _sections(document: Any, names: Collection[str]) -> dict[str, Any]:
    """Return some sections of a document."""
    if not isinstance(document, dict):
        return {}
    pairs = document.get("$dict", document.items())
    return {key: value for key, value in pairs if key in names}


def _outline(node: Any) -> Any:
    """Return names, types and whole shapes of the tensors of a document, without where their bytes are."""
    if isinstance(node, list):
        return [_outline(item) for item in node]
    if not isinstance(node, dict):
        return None
    for mark in ("$tensor", "$array", "$shard"):
        if mark in node:
            entry = node[mark]
            return [entry["dtype"], entry.get("whole", entry["shape"])]
    return {key: _outline(item) for key, item in node.items()}


def _joined(model: dict[str, Tree], buffers: Mapping[str, Tree]) -> dict[str, Tree]:
    """Return the model with its buffers, which are saved apart, also where it is several models.

    Buffers that its `state_dict` does not have are not among them.
    """
    return {
        key: _joined(value, buffers.get(key, {}))
        if isinstance(value, dict)
        else buffers.get(key)
        if value is None
        else value
        for key, value in model.items()
    }


def _leaves(value: Tree, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list | tuple) and any(hasattr(item, "dtype") for item in value):
        for number, item in enumerate(value):
            yield from _leaves(item, f"{path}.{number}")
    elif isinstance(value, tree.Shard):
        raise CheckpointError(f"{path}: the part of one rank, which cannot be made whole")
    else:
        yield path, value


def _with_tensors(value: Tree) -> Tree:
    """Return a state of plain containers and tensors: what torch loads without running any code."""
    if isinstance(value, dict):
        return {key: _with_tensors(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_with_tensors(item) for item in value)
    return _as_torch(value) if hasattr(value, "dtype") else value


def _is_torch(value: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _as_torch(value: Any) -> Any:
    if _is_torch(value):
        return value
    import numpy
    import torch

    return torch.from_numpy(numpy.array(value))


def _put(file: Path, write: Callable[[str], Any]) -> None:
    """Write a file that is there whole or not at all."""
    partial = file.with_name(f".{file.name}.{secrets.token_hex(4)}")
    try:
        write(os.fspath(partial))
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)

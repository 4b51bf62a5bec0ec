"""Tensors that were saved split one way, for ranks that split them another way, or not at all.

All is boxes: an offset and a shape within the whole tensor. Imports torch through its tensors only.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from airflow_training.checkpoints import tree
from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.records import Manifest, RankShards
from airflow_training.checkpoints.torch_state import shard_of
from airflow_training.checkpoints.tree import Shard

__all__ = ["fill_state", "find_differing_blobs", "fit_state"]

Path: TypeAlias = tuple[Any, ...]

Part: TypeAlias = tuple[Any, Mapping[str, bytes | bytearray]]
"""Document and blobs of one rank."""


@dataclass(slots=True)
class _TargetBox:
    """A box of a whole tensor that is put together from what several ranks saved."""

    target: Shard
    plain: bool
    left: int
    seen: set[tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=set)


def fit_state(state: Any, templates: Mapping[Path, Any]) -> dict[Path, _TargetBox]:
    """Bring one rank's state into the layout of the living tensors, in place, as far as it holds the bytes.

    Returns what other ranks' parts are needed for: `fill_state` takes it. A `Shard` that fits stays as it is; of a
    whole tensor, the part that a living DTensor holds is cut out.
    """
    wanted: dict[Path, _TargetBox] = {}
    for path, value, parent in _walk(state, ()):
        template = templates.get(path, templates.get(path[:-1]))
        split = hasattr(template, "device_mesh")
        if isinstance(value, Shard):
            wish = _wish(path, value, template)
            if (wish.offset, wish.tensor.shape) != (value.offset, value.tensor.shape):
                wanted[path] = _TargetBox(wish, not split, wish.tensor.numel())
                parent[path[-1]] = wish if split else wish.tensor
            elif not split:
                parent[path[-1]] = value.tensor
        elif split and hasattr(value, "shape") and tuple(value.shape) == tuple(template.shape):
            here = shard_of(template)
            cut = value[_slices(here.offset, here.tensor.shape)].clone()
            parent[path[-1]] = Shard(cut, here.shape, here.offset)
    return wanted


def fill_state(wanted: Mapping[Path, _TargetBox], parts: Iterable[Part]) -> None:
    """Copy what is wanted out of the parts of all ranks that saved, one rank in memory at a time.

    Raises `CheckpointError` where they do not hold all of it.
    """
    for document, blobs in parts:
        for path, entry in tree.shards(document):
            if path in wanted:
                _take(wanted[path], entry, blobs)
        if not any(item.left for item in wanted.values()):
            return
    names = [".".join(map(str, path)) for path, item in wanted.items() if item.left]
    if names:
        raise CheckpointError(f"the ranks saved only parts of {', '.join(names[:5])}")


def find_differing_blobs(document: Any, manifest: Manifest) -> list[str]:
    """Return the blobs of model and optimizer that ranks hold different bytes of, without saying why.

    A `Shard` says how it is split. Whatever else differs (an optimizer that keeps a part of its state on each
    rank) fits only the number of ranks that saved it.
    """
    told = {entry["blob"] for _, entry in tree.shards(document)}
    first, *others = [_alike(part, told) for part in manifest.ranks]
    return sorted(
        {name for other in others for name in first if other.get(name, first[name]) != first[name]}
    )


def _alike(part: RankShards, told: set[str]) -> dict[str, list[str]]:
    """Return the digests of what should be the same on every rank, by the name of its first blob."""
    found: dict[str, list[str]] = {}
    for shard in part.shards:
        names = [name for name, _ in shard.parts]
        if names[0].split("/")[0] in ("model", "optimizer") and told.isdisjoint(names):
            found.setdefault(names[0], []).append(shard.digest)
    return found


def _wish(path: Path, saved: Shard, template: Any) -> Shard:
    name = ".".join(map(str, path))
    if template is None:
        raise CheckpointError(f"{name}: was split over ranks, and nothing given says how it is now")
    if tuple(template.shape) != saved.shape:
        raise CheckpointError(
            f"{name}: saved as {saved.shape}, the script has {tuple(template.shape)}"
        )
    if hasattr(template, "device_mesh"):
        here = shard_of(template)
        offset, shape = here.offset, here.tensor.shape
    else:
        offset, shape = (0,) * len(saved.shape), saved.shape
    return Shard(saved.tensor.new_empty(tuple(shape)), saved.shape, offset)


def _take(
    item: _TargetBox, entry: Mapping[str, Any], blobs: Mapping[str, bytes | bytearray]
) -> None:
    offset, shape = tuple(entry["offset"]), tuple(entry["shape"])
    if (offset, shape) in item.seen:  # a replica of what another rank has given
        return
    item.seen.add((offset, shape))
    target = item.target
    low = [max(a, b) for a, b in zip(offset, target.offset, strict=True)]
    high = [
        min(a + n, b + m)
        for a, n, b, m in zip(offset, shape, target.offset, target.tensor.shape, strict=True)
    ]
    size = [h - lo for lo, h in zip(low, high, strict=True)]
    if any(n <= 0 for n in size):
        return
    piece = tree.decode({"$shard": entry}, blobs).tensor
    there = _slices([lo - o for lo, o in zip(low, target.offset, strict=True)], size)
    here = _slices([lo - o for lo, o in zip(low, offset, strict=True)], size)
    target.tensor[there].copy_(piece[here])
    item.left -= math.prod(size)


def _slices(offset: Iterable[int], shape: Iterable[int]) -> tuple[slice, ...]:
    return tuple(slice(start, start + n) for start, n in zip(offset, shape, strict=True))


def _walk(value: Any, path: Path) -> Iterator[tuple[Path, Any, Any]]:
    """Yield path, value and the dict or list that holds it, of all that is not composite."""
    if isinstance(value, dict | list):
        pairs = list(value.items() if isinstance(value, dict) else enumerate(value))
        for key, item in pairs:
            if isinstance(item, dict | list):
                yield from _walk(item, (*path, key))
            else:
                yield (*path, key), item, value

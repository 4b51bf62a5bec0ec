"""State as a tree: a JSON document that says what there is, and the raw bytes it points to. No pickle.

A tree is made of dicts, lists, tuples, sets, counters, JSON scalars, `bytes`, numpy arrays, torch tensors and
`Shard`s, nested as one likes. The document is JSON; what has no JSON form stands in it as an object with one
key that begins with `$`, so `{"$tuple": [1, 2]}`. Bytes are named by `{"blob", "at", "bytes"}`: large leaves
are a blob of their own, so that one that did not change is not stored again; small ones of a section (a key
of the outermost dict) share one. What kind of storage holds the blobs is not known here.
"""

from __future__ import annotations

import json
import logging
import math
import mmap
import pickle
import sys
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from airflow_training.checkpoints.errors import CheckpointError

__all__ = ["Arena", "Outline", "Shard", "decode", "differences", "encode", "outline", "shards"]

log = logging.getLogger("airflow_training.checkpoints")

Document: TypeAlias = Any
"""What `json.dumps` takes."""

LARGE = 1 << 20
"""Bytes from which a leaf is a blob of its own."""

FULL = 8 << 20
"""Bytes at which a blob of small leaves is closed."""

ALIGNED = 64
"""Every leaf begins at a multiple: any dtype may be viewed in place, and copies take the fast path."""

DEEPEST = 100

_TOUCHED_AT_ONCE = 1 << 20

_ARRAY_KINDS = "biufcSUmM"


@dataclass(frozen=True, slots=True, eq=False)
class Shard:
    """One rank's part of a tensor that is split over ranks: the box at `offset` of a whole of `shape`."""

    tensor: Any
    shape: tuple[int, ...]
    offset: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """Bytes of the tree and their place: `at` is counted from the start of the blob."""

    source: Any
    size: int
    blob: str
    at: int


@dataclass(frozen=True, slots=True)
class Outline:
    """A tree that was looked at and not yet copied: its document, its leaves, and the size of each blob."""

    document: Document
    leaves: Sequence[_Leaf]
    blobs: Mapping[str, int]

    @property
    def size(self) -> int:
        """Bytes that a copy of all blobs takes."""
        return sum(_aligned(size) for size in self.blobs.values())


class Arena:
    """Memory for one copy of a state, used again for the next: what saving costs in memory."""

    def __init__(self, *, pinned: bool = False) -> None:
        """`pinned`: in memory that a device copies to directly (needs torch with a device)."""
        self._pinned = pinned
        self._memory = memoryview(b"")
        self._owner: Any = None

    @property
    def size(self) -> int:
        """Bytes held now."""
        return len(self._memory)

    def copy(self, taken: Outline) -> dict[str, memoryview]:
        """Copy all leaves; return name -> bytes of each blob, valid until the next copy."""
        if taken.size > self.size:
            self._allocate(taken.size)
        starts, end = {}, 0
        for name, size in taken.blobs.items():
            starts[name] = end
            end += _aligned(size)
        devices = set()
        for leaf in taken.leaves:
            start = starts[leaf.blob] + leaf.at
            devices.add(_copy(leaf.source, self._memory[start : start + leaf.size]))
        for kind in devices - {"cpu"}:
            getattr(sys.modules["torch"], kind).synchronize()
        return {
            name: self._memory[start : start + taken.blobs[name]].toreadonly()
            for name, start in starts.items()
        }

    def reserve(self, size: int) -> None:
        """Hold memory for a copy of `size` bytes, so that the first copy does not wait for the kernel to find it."""
        if size <= self.size:
            return
        self._allocate(size)
        for start in range(0, size, _TOUCHED_AT_ONCE):  # other threads run in between
            end = min(start + _TOUCHED_AT_ONCE, size)
            self._memory[start:end] = bytes(end - start)

    def _allocate(self, size: int) -> None:
        self._memory = memoryview(b"")
        self._owner = None  # the old one goes first: never two of them
        if self._pinned:
            torch = sys.modules["torch"]
            self._owner = torch.empty(size, dtype=torch.uint8, pin_memory=True)
            self._memory = memoryview(self._owner.numpy())
        else:
            # zeroed by the kernel when first touched, in large pages: no pass over it here
            self._owner = mmap.mmap(-1, size)
            if hasattr(mmap, "MADV_HUGEPAGE"):
                self._owner.madvise(mmap.MADV_HUGEPAGE)
            self._memory = memoryview(self._owner)


def encode(
    state: Any, *, allow_pickle: bool = False, arena: Arena | None = None
) -> tuple[Document, dict[str, memoryview]]:
    """Return the document and the blobs of a tree, copied: the state may change afterwards.

    Raises `CheckpointError`, which names the place, for what is neither of the types above. With
    `allow_pickle` it is pickled instead.
    """
    taken = outline(state, allow_pickle=allow_pickle)
    return taken.document, (arena or Arena()).copy(taken)


def outline(state: Any, *, allow_pickle: bool = False) -> Outline:
    """Outline of the object that `encode` would store; copies nothing, and takes microseconds per leaf."""
    walk = _Encoder(allow_pickle=allow_pickle)
    return Outline(document=walk.top(state), leaves=walk.leaves, blobs=walk.blobs)


def decode(
    document: Document,
    blobs: Mapping[str, bytes | bytearray | memoryview],
    *,
    allow_pickle: bool = False,
) -> Any:
    """Return the tree again; tensors on the CPU, in the memory of the blobs where that is writable.

    Raises `CheckpointError` where the document is none, or holds pickled objects that were not allowed.
    """
    return _Decoder(blobs, allow_pickle=allow_pickle).value(document, "state")


def shards(
    document: Document, path: tuple[Any, ...] = ()
) -> Iterator[tuple[tuple[Any, ...], Mapping[str, Any]]]:
    """Yield the path and the entry of every `Shard`: the `whole`, and `offset` and `shape` of its part."""
    if isinstance(document, list):
        for number, item in enumerate(document):
            yield from shards(item, (*path, number))
    elif isinstance(document, dict):
        mark = next(iter(document)) if len(document) == 1 else ""
        if mark == "$shard":
            yield path, document[mark]
        elif mark == "$tuple":
            yield from shards(document[mark], path)
        elif mark in ("$dict", "$ordered"):
            for key, value in document[mark]:
                yield from shards(value, (*path, key))
        else:
            for key, value in document.items():
                yield from shards(value, (*path, key))


def differences(first: Any, second: Any, path: str = "") -> Iterator[str]:
    """Yield the paths at which two trees are not bit for bit the same."""
    if isinstance(first, Mapping) and isinstance(second, Mapping):
        for key in {**first, **second}:
            place = f"{path}.{key}" if path else str(key)
            if key in first and key in second:
                yield from differences(first[key], second[key], place)
            else:
                yield place
    elif isinstance(first, list | tuple) and type(first) is type(second):
        if len(first) != len(second):
            yield path
            return
        for number, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{path}.{number}")
    else:
        one, other = encode(first), encode(second)
        # as text: 1, 1.0 and True are equal objects, and different states
        if json.dumps(one[0]) != json.dumps(other[0]) or one[1] != other[1]:
            yield path


class _Encoder:
    """One walk over a tree: the document grows on the way back, leaves get their places on the way."""

    def __init__(self, *, allow_pickle: bool) -> None:
        self._allow_pickle = allow_pickle
        self._section = ""
        self._open = ""  # the blob that takes small leaves now
        self._shared: dict[tuple[Any, ...] | None, dict[str, Any]] = {}
        self.leaves: list[_Leaf] = []
        self.blobs: dict[str, int] = {}

    def top(self, state: Any) -> Document:
        if type(state) is not dict or not all(type(key) is str for key in state):
            return self.value(state, "state", 0)
        parts = []
        for key, value in state.items():
            self._section, self._open = key, ""
            parts.append((key, self.value(value, key, 1)))
        return _object(parts)

    def value(self, value: Any, path: str, depth: int) -> Document:
        kind = type(value)
        if value is None or kind in (bool, int, str):
            return value
        if kind is float:
            return value if math.isfinite(value) else {"$float": repr(value)}
        if depth > DEEPEST:
            raise CheckpointError(f"{path}: nested deeper than {DEEPEST} levels")
        if isinstance(value, dict):
            return self._dict(value, path, depth)
        if kind is list:
            return self._items(value, path, depth)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return {"$tuple": self._items(value, path, depth)}
        if kind in (set, frozenset):
            try:
                ordered = sorted(value)
            except TypeError as error:
                raise CheckpointError(f"{path}: a set of things that have no order") from error
            return {f"${kind.__name__}": self._items(ordered, path, depth)}
        if kind is complex:
            return {"$complex": self._items([value.real, value.imag], path, depth)}
        return self._bytes(value, path)

    def _items(self, values: Sequence[Any], path: str, depth: int) -> list[Document]:
        return [self.value(v, f"{path}.{n}", depth + 1) for n, v in enumerate(values)]

    def _dict(self, value: Mapping[Any, Any], path: str, depth: int) -> Document:
        parts = []
        for key, item in value.items():
            if type(key) not in (str, int, bool, float, type(None)):
                raise CheckpointError(f"{path}: a key of type {type(key).__name__}: {key!r}")
            parts.append((key, self.value(item, f"{path}.{key}", depth + 1)))
        if isinstance(value, Counter):
            return {"$counter": [list(part) for part in parts]}
        if isinstance(value, OrderedDict):
            return {"$ordered": [list(part) for part in parts]}
        return _object(parts)

    def _bytes(self, value: Any, path: str) -> Document:
        torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
        if isinstance(value, bytes | bytearray | memoryview):
            flat = memoryview(value).cast("B")
            return {"$bytes": self._place(flat, flat.nbytes, key=None)}
        if torch is not None and isinstance(value, torch.Tensor):
            return {"$tensor": self._tensor(value, path)}
        if isinstance(value, Shard):
            entry = self._tensor(value.tensor, path)
            return {"$shard": {**entry, "whole": list(value.shape), "offset": list(value.offset)}}
        if numpy is not None and isinstance(value, numpy.ndarray | numpy.generic):
            return self._array(value, path)
        if self._allow_pickle:
            log.warning("%s: %s is pickled, as allowed", path, type(value).__name__)
            pickled = pickle.dumps(value, protocol=4)
            return {"$pickle": self._place(memoryview(pickled), len(pickled), key=None)}
        raise CheckpointError(
            f"{path}: a {type(value).__module__}.{type(value).__qualname__} has no form without pickle;"
            " give tensors, arrays, bytes, numbers, text, and lists, tuples, sets and dicts of them"
        )

    def _tensor(self, tensor: Any, path: str) -> dict[str, Any]:
        torch = sys.modules["torch"]
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise CheckpointError(f"{path}: a tensor of type {type(tensor).__qualname__}")
        if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_meta:
            raise CheckpointError(f"{path}: a tensor that is sparse, quantized or without data")
        tensor = tensor.detach().resolve_conj().resolve_neg()
        entry = {"dtype": str(tensor.dtype).removeprefix("torch."), "shape": list(tensor.shape)}
        if not tensor.is_contiguous():
            # channels last, transposed: the same bytes in the same order come back with the same strides
            order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
            if tensor.permute(order).is_contiguous():
                entry["order"] = order
                tensor = tensor.permute(order)
        size = tensor.numel() * tensor.element_size()
        key = (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride())
        return {**entry, **self._place(tensor, size, key=key if size else None)}

    def _array(self, value: Any, path: str) -> Document:
        if value.dtype.kind not in _ARRAY_KINDS:
            raise CheckpointError(
                f"{path}: an array of {value.dtype}; view it as bytes, or as numbers of its size"
            )
        entry: dict[str, Any] = {"dtype": value.dtype.str, "shape": list(value.shape)}
        numpy = sys.modules["numpy"]
        if isinstance(value, numpy.generic):
            entry["scalar"] = True
        array = numpy.asarray(value)
        if array.ndim > 1 and array.flags.f_contiguous and not array.flags.c_contiguous:
            entry["order"] = "F"
            array = array.T
        key = (
            array.__array_interface__["data"][0],
            "cpu",
            array.dtype.str,
            array.shape,
            array.strides,
        )
        return {
            "$array": {
                **entry,
                **self._place(array, array.nbytes, key=key if array.nbytes else None),
            }
        }

    def _place(self, source: Any, size: int, *, key: tuple[Any, ...] | None) -> dict[str, Any]:
        """Give a leaf its blob; what lies at the same address (`key`), as tied weights do, is stored once."""
        known = None if key is None else (self._section, *key)
        if known in self._shared:
            return self._shared[known]
        if size >= LARGE or not self._open or self.blobs[self._open] >= FULL:
            name = f"{self._section or 'state'}/{len(self.blobs)}"
            self.blobs[name] = 0
            if size < LARGE:
                self._open = name
        else:
            name = self._open
        at = _aligned(self.blobs[name])
        self.blobs[name] = at + size
        self.leaves.append(_Leaf(source, size, name, at))
        place = {"blob": name, "at": at, "bytes": size}
        if known is not None:
            self._shared[known] = place
        return place


class _Decoder:
    def __init__(
        self, blobs: Mapping[str, bytes | bytearray | memoryview], *, allow_pickle: bool
    ) -> None:
        self._blobs = blobs
        self._allow_pickle = allow_pickle

    def value(self, node: Document, path: str) -> Any:
        if isinstance(node, list):
            return [self.value(item, f"{path}.{n}") for n, item in enumerate(node)]
        if not isinstance(node, dict):
            return node
        mark = next(iter(node)) if len(node) == 1 else ""
        if not mark.startswith("$"):
            return {key: self.value(item, f"{path}.{key}") for key, item in node.items()}
        content = node[mark]
        match mark:
            case "$float":
                return float(content)
            case "$complex":
                return complex(*self.value(content, path))
            case "$tuple":
                return tuple(self.value(content, path))
            case "$set":
                return set(self.value(content, path))
            case "$frozenset":
                return frozenset(self.value(content, path))
            case "$dict":
                return {key: self.value(item, f"{path}.{key}") for key, item in content}
            case "$ordered":
                return OrderedDict(
                    (key, self.value(item, f"{path}.{key}")) for key, item in content
                )
            case "$counter":
                return Counter({key: self.value(item, path) for key, item in content})
            case "$bytes":
                return bytes(self._raw(content, path))
            case "$tensor":
                return self._tensor(content, path)
            case "$shard":
                tensor = self._tensor(content, path)
                return Shard(tensor, tuple(content["whole"]), tuple(content["offset"]))
            case "$array":
                return self._array(content, path)
            case "$pickle":
                return self._pickled(content, path)
        raise CheckpointError(f"{path}: {mark} is of a newer version of this library")

    def _raw(self, entry: Mapping[str, Any], path: str) -> memoryview:
        start, size = entry["at"], entry["bytes"]
        blob = self._blobs.get(entry["blob"])
        if blob is None or start + size > len(blob):
            raise CheckpointError(f"{path}: its bytes are missing in {entry['blob']}")
        return memoryview(blob)[start : start + size]

    def _tensor(self, entry: Mapping[str, Any], path: str) -> Any:
        import torch

        dtype, shape, order = getattr(torch, entry["dtype"]), entry["shape"], entry.get("order")
        raw = _writable(self._raw(entry, path))
        flat = torch.frombuffer(raw, dtype=dtype) if len(raw) else torch.empty(0, dtype=dtype)
        if order is None:
            return flat.reshape(shape)
        return flat.reshape([shape[d] for d in order]).permute(
            [order.index(d) for d in range(len(order))]
        )

    def _array(self, entry: Mapping[str, Any], path: str) -> Any:
        import numpy

        raw = _writable(self._raw(entry, path))
        flat = numpy.frombuffer(raw, dtype=numpy.dtype(entry["dtype"]))
        shape = entry["shape"]
        if entry.get("scalar"):
            return flat[0]
        return flat.reshape(shape[::-1]).T if entry.get("order") == "F" else flat.reshape(shape)

    def _pickled(self, entry: Mapping[str, Any], path: str) -> Any:
        if not self._allow_pickle:
            raise CheckpointError(
                f"{path}: was pickled, and loading it may run any code: allow_pickle=True where you trust it"
            )
        log.warning("%s: is unpickled, as allowed", path)
        return pickle.loads(self._raw(entry, path))  # noqa: S301 - opted into, verified before


def _object(parts: Sequence[tuple[Any, Document]]) -> Document:
    """Return a JSON object where sorting its keys keeps their order and type, else a list of pairs."""
    keys = [key for key, _ in parts]
    plain = all(type(key) is str and not key.startswith("$") for key in keys)
    if plain and keys == sorted(keys):
        return dict(parts)
    return {"$dict": [list(part) for part in parts]}


def _writable(raw: memoryview) -> memoryview:
    """Return the bytes where they are if they may be written to, else a copy."""
    return memoryview(bytearray(raw)) if raw.readonly else raw


def _aligned(size: int) -> int:
    return -(-size // ALIGNED) * ALIGNED


def _copy(source: Any, target: memoryview) -> str:
    """Copy a leaf's bytes; return the kind of device on which the copy may still run."""
    if not len(target):
        return "cpu"
    if isinstance(source, memoryview):
        target[:] = source
        return "cpu"
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(source, torch.Tensor):
        there = torch.frombuffer(target, dtype=source.dtype).view(source.shape)
        there.copy_(source, non_blocking=True)
        return str(source.device.type)
    numpy = sys.modules["numpy"]
    there = numpy.frombuffer(target, dtype=source.dtype).reshape(source.shape)
    numpy.copyto(there, source)
    return "cpu"

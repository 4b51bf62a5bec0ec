"""The documents of a checkpoint group: claim, fence, marker, manifest. Pure: to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from airflow_training.checkpoints.documents import canonical, seal, sha256_of, unseal
from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import SaveId
from airflow_training.checkpoints.shards import ShardObject

__all__ = [
    "Claim",
    "Fence",
    "Manifest",
    "Marker",
    "ParentCheckpoint",
    "RankShards",
    "full_bitmap",
    "root_digest",
]

FORMAT = 1

_Record = TypeVar("_Record")


class _DigestedRecord:
    """A record with a document of its own: its fields, but for the digest of that document."""

    __slots__ = ()

    def to_bytes(self) -> bytes:
        document = to_json(self)
        document.pop("digest", None)
        return seal(document)

    @classmethod
    def from_bytes(cls: type[_Record], content: bytes, *, what: str) -> _Record:
        document = unseal(content, what=what)
        record: _Record = _record(cls, {**document, "digest": sha256_of(content)}, what)
        return record


@dataclass(frozen=True, slots=True, kw_only=True)
class ParentCheckpoint:
    """The checkpoint a generation starts from."""

    step: int
    generation: int
    digest: str
    """Of its manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim(_DigestedRecord):
    """From now on no older generation commits. Says who came, before it is known from where it goes on."""

    generation: int
    epoch: int
    order: int
    owner: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence(_DigestedRecord):
    """The start of a generation: what it goes on from, for good."""

    generation: int
    base: ParentCheckpoint | None
    incarnation: str
    order: int
    world: int
    at: float
    owner: str
    digest: str = ""
    """Of the document itself; empty only before it was written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker(_DigestedRecord):
    """One rank has brought its part of a save to the store, whole."""

    step: int
    rank: int
    world: int
    generation: int
    shards: tuple[ShardObject, ...]
    state: str
    """Digest of this rank's state: equal states have equal ones, whenever and wherever they were saved."""
    cursor: Any
    rng: str
    at: float
    environment: str = ""
    """Digest of the newest record of what its instance had around it; see `telling`."""

    @property
    def save(self) -> SaveId:
        return SaveId(self.step, self.generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankShards:
    """What a manifest says of one rank."""

    marker: str
    """Digest of its marker."""
    state: str
    shards: tuple[ShardObject, ...]
    environment: str = ""
    """As the marker names it."""

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest(_DigestedRecord):
    """A committed checkpoint: with this document it exists, without it there is none."""

    step: int
    generation: int
    number: int
    """Counts the checkpoints from the first of all on, over all generations it goes back to."""
    base: ParentCheckpoint | None
    fence: str
    """Digest of the fence of its generation."""
    parent: str | None
    """Digest of the manifest before it."""
    ranks: tuple[RankShards, ...]
    cursor: Any
    """That of rank 0; each rank's own is in its marker."""
    code: str
    environment: str
    at: float
    digest: str = ""
    """Of the document itself; empty only before it was written."""

    @property
    def save(self) -> SaveId:
        return SaveId(self.step, self.generation)

    @property
    def world(self) -> int:
        return len(self.ranks)

    @property
    def root_digest(self) -> str:
        return root_digest(self.step, self.ranks)

    @property
    def size(self) -> int:
        """Bytes of state, shared shards counted for every rank that has them."""
        return sum(part.size for part in self.ranks)

    def as_base(self) -> ParentCheckpoint:
        return ParentCheckpoint(step=self.step, generation=self.generation, digest=self.digest)

    def to_bytes(self) -> bytes:
        document = {**to_json(self), **self._derived()}
        del document["digest"]
        return seal(document)

    @classmethod
    def from_bytes(cls, content: bytes, *, what: str) -> Manifest:
        document = unseal(content, what=what)
        if document.get("format") != FORMAT:
            raise BadCheckpoint(f"{what} is of format {document.get('format')}, known is {FORMAT}")
        manifest: Manifest = _record(cls, {**document, "digest": sha256_of(content)}, what)
        if any(document.get(name) != value for name, value in manifest._derived().items()):
            raise BadCheckpoint(f"{what} does not hold every rank")
        return manifest

    def _derived(self) -> dict[str, Any]:
        """Return what its document says besides, which has to agree with its ranks."""
        return {
            "format": FORMAT,
            "world": self.world,
            "bitmap": full_bitmap(self.world),
            "root_digest": self.root_digest,
        }


def full_bitmap(world: int) -> str:
    """Return the bitmap over ranks with every bit set, in hexadecimal."""
    return f"{(1 << world) - 1:x}"


def root_digest(step: int, ranks: Sequence[RankShards]) -> str:
    """Return the digest over (rank, step, bytes, digest) of all ranks' states."""
    return sha256_of(
        canonical([[rank, step, part.size, part.state] for rank, part in enumerate(ranks)])
    )


def to_json(record: Any) -> dict[str, Any]:
    """Return a record's fields as JSON has them."""
    document = {name: _plain(getattr(record, name)) for name in _declared(record.__class__)}
    return {**document, "size": record.size} if isinstance(record, ShardObject) else document


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return to_json(value) if is_dataclass(value) else value


def _record(kind: Any, document: Mapping[str, Any], what: str) -> Any:
    """Return the record of a document; raises BadCheckpoint where a field is not what it is declared as."""
    values = {}
    for name, declared in _declared(kind).items():
        if name not in document:
            raise BadCheckpoint(f"{what} has no {name!r}")
        values[name] = _value(declared, document[name], what, name)
    record = kind(**values)
    if isinstance(record, ShardObject) and document.get("size") != record.size:
        raise BadCheckpoint(f"{what}: its parts do not add up to its size")
    return record


@cache
def _declared(kind: Any) -> Mapping[str, Any]:
    return get_type_hints(kind)


def _value(declared: Any, value: Any, what: str, name: str) -> Any:
    """Return a value of a document as its field is declared; whole numbers count something."""
    if declared is Any or (isinstance(value, str) and declared is str):
        return value
    choices = get_args(declared)
    if type(None) in choices:
        return None if value is None else _value(choices[0], value, what, name)
    if is_dataclass(declared) and isinstance(value, dict):
        return _record(declared, value, f"{what}, {name}")
    if get_origin(declared) is tuple and isinstance(value, list):
        kinds = choices[:1] * len(value) if choices[-1] is Ellipsis else choices
        if len(kinds) == len(value):
            return tuple(
                _value(kind, each, what, f"{name}[{i}]")
                for i, (kind, each) in enumerate(zip(kinds, value, strict=True))
            )
    if declared is int and isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if declared is float and isinstance(value, (int, float)):
        return value
    raise BadCheckpoint(f"{what}: {name} is {str(value)[:40]!r}")

"""The documents of a checkpoint group: claim, fence, marker, manifest. Pure: to JSON and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.checkpoints.documents import canonical, seal, sha256_of, unseal
from airflow_training.checkpoints.errors import BadCheckpoint
from airflow_training.checkpoints.keys import Save
from airflow_training.checkpoints.shards import Shard

__all__ = ["Base", "Claim", "Fence", "Manifest", "Marker", "Part", "full_bitmap", "root_digest"]

FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Base:
    """The checkpoint a generation starts from."""

    step: int
    generation: int
    digest: str
    """Of its manifest."""

    def to_json(self) -> dict[str, Any]:
        return {"step": self.step, "generation": self.generation, "digest": self.digest}


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """From now on no older generation commits. Says who came, before it is known from where it goes on."""

    generation: int
    epoch: int
    order: int
    owner: str

    def to_bytes(self) -> bytes:
        return seal(
            {
                "generation": self.generation,
                "epoch": self.epoch,
                "order": self.order,
                "owner": self.owner,
            }
        )

    @staticmethod
    def from_bytes(content: bytes, *, what: str) -> Claim:
        read = _Reader(unseal(content, what=what), what)
        return Claim(
            generation=read.integer("generation"),
            epoch=read.integer("epoch"),
            order=read.integer("order"),
            owner=read.text("owner"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fence:
    """The start of a generation: what it goes on from, for good."""

    generation: int
    base: Base | None
    incarnation: str
    order: int
    world: int
    at: float
    owner: str
    digest: str = ""
    """Of the document itself; empty only before it was written."""

    def to_bytes(self) -> bytes:
        return seal(
            {
                "generation": self.generation,
                "base": self.base.to_json() if self.base else None,
                "incarnation": self.incarnation,
                "order": self.order,
                "world": self.world,
                "at": self.at,
                "owner": self.owner,
            }
        )

    @staticmethod
    def from_bytes(content: bytes, *, what: str) -> Fence:
        read = _Reader(unseal(content, what=what), what)
        return Fence(
            generation=read.integer("generation"),
            base=read.base(),
            incarnation=read.text("incarnation"),
            order=read.integer("order"),
            world=read.integer("world"),
            at=read.number("at"),
            owner=read.text("owner"),
            digest=sha256_of(content),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """One rank has brought its part of a save to the store, whole."""

    step: int
    rank: int
    world: int
    generation: int
    shards: tuple[Shard, ...]
    state: str
    """Digest of this rank's state: equal states have equal ones, whenever and wherever they were saved."""
    cursor: Any
    rng: str
    at: float
    environment: str = ""
    """Digest of the newest record of what its instance had around it; see `telling`."""

    @property
    def save(self) -> Save:
        return Save(self.step, self.generation)

    def to_bytes(self) -> bytes:
        return seal(
            {
                "step": self.step,
                "rank": self.rank,
                "world": self.world,
                "generation": self.generation,
                "shards": _shards_to_json(self.shards),
                "state": self.state,
                "cursor": self.cursor,
                "rng": self.rng,
                "environment": self.environment,
                "at": self.at,
            }
        )

    @staticmethod
    def from_bytes(content: bytes, *, what: str) -> Marker:
        read = _Reader(unseal(content, what=what), what)
        return Marker(
            step=read.integer("step"),
            rank=read.integer("rank"),
            world=read.integer("world"),
            generation=read.integer("generation"),
            shards=read.shards(),
            state=read.text("state"),
            cursor=read.anything("cursor"),
            rng=read.text("rng"),
            environment=read.text("environment"),
            at=read.number("at"),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a manifest says of one rank."""

    marker: str
    """Digest of its marker."""
    state: str
    shards: tuple[Shard, ...]
    environment: str = ""
    """As the marker names it."""

    @property
    def size(self) -> int:
        return sum(shard.size for shard in self.shards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """A committed checkpoint: with this document it exists, without it there is none."""

    step: int
    generation: int
    number: int
    """Counts the checkpoints from the first of all on, over all generations it goes back to."""
    base: Base | None
    fence: str
    """Digest of the fence of its generation."""
    parent: str | None
    """Digest of the manifest before it."""
    ranks: tuple[Part, ...]
    cursor: Any
    """That of rank 0; each rank's own is in its marker."""
    code: str
    environment: str
    at: float
    digest: str = ""
    """Of the document itself; empty only before it was written."""

    @property
    def save(self) -> Save:
        return Save(self.step, self.generation)

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

    def as_base(self) -> Base:
        return Base(step=self.step, generation=self.generation, digest=self.digest)

    def to_bytes(self) -> bytes:
        return seal(
            {
                "format": FORMAT,
                "step": self.step,
                "world": self.world,
                "generation": self.generation,
                "number": self.number,
                "base": self.base.to_json() if self.base else None,
                "fence": self.fence,
                "parent": self.parent,
                "bitmap": full_bitmap(self.world),
                "ranks": [
                    {
                        "marker": part.marker,
                        "state": part.state,
                        "shards": _shards_to_json(part.shards),
                        "environment": part.environment,
                    }
                    for part in self.ranks
                ],
                "cursor": self.cursor,
                "code": self.code,
                "environment": self.environment,
                "root_digest": self.root_digest,
                "at": self.at,
            }
        )

    @staticmethod
    def from_bytes(content: bytes, *, what: str) -> Manifest:
        read = _Reader(unseal(content, what=what), what)
        if read.integer("format") != FORMAT:
            raise BadCheckpoint(f"{what} is of format {read.integer('format')}, known is {FORMAT}")
        manifest = Manifest(
            step=read.integer("step"),
            generation=read.integer("generation"),
            number=read.integer("number"),
            base=read.base(),
            fence=read.text("fence"),
            parent=read.optional_text("parent"),
            ranks=tuple(
                Part(
                    marker=one.text("marker"),
                    state=one.text("state"),
                    shards=one.shards(),
                    environment=one.text("environment"),
                )
                for one in read.each("ranks")
            ),
            cursor=read.anything("cursor"),
            code=read.text("code"),
            environment=read.text("environment"),
            at=read.number("at"),
            digest=sha256_of(content),
        )
        whole = (
            read.integer("world") == manifest.world
            and read.text("bitmap") == full_bitmap(manifest.world)
            and read.text("root_digest") == manifest.root_digest
        )
        if not whole:
            raise BadCheckpoint(f"{what} does not hold every rank")
        return manifest


def full_bitmap(world: int) -> str:
    """Return the bitmap over ranks with every bit set, in hexadecimal."""
    return f"{(1 << world) - 1:x}"


def root_digest(step: int, ranks: Sequence[Part]) -> str:
    """Return the digest over (rank, step, bytes, digest) of all ranks' states."""
    return sha256_of(
        canonical([[rank, step, part.size, part.state] for rank, part in enumerate(ranks)])
    )


def _shards_to_json(shards: Sequence[Shard]) -> list[dict[str, Any]]:
    return [
        {
            "key": shard.key,
            "digest": shard.digest,
            "size": shard.size,
            "chunks": list(shard.chunks),
            "parts": [list(part) for part in shard.parts],
        }
        for shard in shards
    ]


class _Reader:
    """Takes typed values out of a document; anything else than expected makes it bad."""

    def __init__(self, document: Mapping[str, Any], what: str) -> None:
        self._document = document
        self._what = what

    def anything(self, name: str) -> Any:
        try:
            return self._document[name]
        except KeyError:
            raise BadCheckpoint(f"{self._what} has no {name!r}") from None

    def integer(self, name: str) -> int:
        value = self.anything(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise self._unexpected(name, value)
        return value

    def number(self, name: str) -> float:
        value = self.anything(name)
        if not isinstance(value, (int, float)):
            raise self._unexpected(name, value)
        return value

    def text(self, name: str) -> str:
        value = self.anything(name)
        if not isinstance(value, str):
            raise self._unexpected(name, value)
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.anything(name) is None else self.text(name)

    def each(self, name: str) -> list[_Reader]:
        value = self.anything(name)
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            raise self._unexpected(name, value)
        return [_Reader(one, f"{self._what}, {name}[{i}]") for i, one in enumerate(value)]

    def base(self) -> Base | None:
        value = self.anything("base")
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._unexpected("base", value)
        inner = _Reader(value, f"{self._what}, base")
        return Base(
            step=inner.integer("step"),
            generation=inner.integer("generation"),
            digest=inner.text("digest"),
        )

    def shards(self) -> tuple[Shard, ...]:
        return tuple(one.shard() for one in self.each("shards"))

    def shard(self) -> Shard:
        chunks, parts = self.anything("chunks"), self.anything("parts")
        if not isinstance(chunks, list) or not all(isinstance(one, str) for one in chunks):
            raise self._unexpected("chunks", chunks)
        try:
            named = tuple((str(name), int(size)) for name, size in parts)
        except (TypeError, ValueError):
            raise self._unexpected("parts", parts) from None
        shard = Shard(
            key=self.text("key"), digest=self.text("digest"), chunks=tuple(chunks), parts=named
        )
        if shard.size != self.integer("size"):
            raise BadCheckpoint(f"{self._what}: its parts do not add up to its size")
        return shard

    def _unexpected(self, name: str, value: Any) -> BadCheckpoint:
        return BadCheckpoint(f"{self._what}: {name} is {str(value)[:40]!r}")

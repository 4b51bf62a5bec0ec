"""What of a service's folder may go: data only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["ItemKind", "UnneededItem"]

ItemKind = Literal["run", "content", "chunk"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnneededItem:
    """Something that may go."""

    kind: ItemKind
    name: str
    """A run's id, or a SHA-256."""
    bytes: int
    since: float
    """Nobody has needed it since then, in epoch seconds."""
    paths: Sequence[Path]
    """In the order in which they go: what the others are found by is last."""
    makes_room: bool = True
    """Whether it may go for want of room before its time."""

"""The names of objects below the root of a checkpoint group, made and read here only. Pure.

Every key is written once. What belongs to a save has its step and generation in the key, so that no two saves
can ever mean the same object, on whatever store.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = [
    "CLAIMS",
    "FAILURES",
    "FENCES",
    "MANIFESTS",
    "MARKERS",
    "SHARDS",
    "SaveId",
    "claim_key",
    "claimed_generation",
    "failure_key",
    "fence_key",
    "fenced_generation",
    "manifest_key",
    "marker_key",
    "rank_of",
    "save_of",
    "shard_key",
]

CLAIMS = "claims/"
FENCES = "fences/"
SHARDS = "shards/"
MARKERS = "markers/"
MANIFESTS = "manifests/"
FAILURES = "failures/"

_CLAIM = re.compile(r"claims/(\d{8,})-[0-9a-f]+\.json")
_FENCE = re.compile(r"fences/(\d{8,})\.json")
_SAVE = re.compile(
    r"manifests/(?P<step>\d{12,})-(?P<generation>\d{8,})\.json"
    r"|(?:markers|failures)/(?P<step_>\d{12,})-(?P<generation_>\d{8,})/\d+\.json"
    r"|shards/[0-9a-f]{2}/[0-9a-f]+-\d+-(?P<step__>\d{12,})-(?P<generation__>\d{8,})"
)


class SaveId(NamedTuple):
    """One attempt at a checkpoint: a step in a generation."""

    step: int
    generation: int

    def __str__(self) -> str:
        return f"{self.step:012d}-{self.generation:08d}"


def claim_key(generation: int, owner: str) -> str:
    """Return the key under which one process claims a generation."""
    return f"{CLAIMS}{generation:08d}-{owner}.json"


def fence_key(generation: int) -> str:
    """Return the key of the fence of a generation."""
    return f"{FENCES}{generation:08d}.json"


def shard_key(digest: str, size: int, save: SaveId) -> str:
    """Return the key of a shard that this save is the first to hold."""
    hexadecimal = digest.partition(":")[2]
    return f"{SHARDS}{hexadecimal[:2]}/{hexadecimal}-{size}-{save}"


def marker_key(save: SaveId, rank: int) -> str:
    """Return the key of a rank's marker."""
    return f"{MARKERS}{save}/{rank:05d}.json"


def failure_key(save: SaveId, rank: int) -> str:
    """Return the key of a rank's note that it has no part in a save."""
    return f"{FAILURES}{save}/{rank:05d}.json"


def manifest_key(save: SaveId) -> str:
    """Return the key of the manifest of a save."""
    return f"{MANIFESTS}{save}.json"


def claimed_generation(key: str) -> int | None:
    """Return the generation that a claim is for; None for other keys."""
    found = _CLAIM.fullmatch(key)
    return int(found[1]) if found else None


def fenced_generation(key: str) -> int | None:
    """Return the generation that a fence starts; None for other keys."""
    found = _FENCE.fullmatch(key)
    return int(found[1]) if found else None


def save_of(key: str) -> SaveId | None:
    """Return the save that a manifest, marker, failure note or shard belongs to; None for other keys."""
    found = _SAVE.fullmatch(key)
    if found is None:
        return None
    step = found["step"] or found["step_"] or found["step__"]
    generation = found["generation"] or found["generation_"] or found["generation__"]
    return SaveId(int(step), int(generation))


def rank_of(key: str) -> int:
    """Return the rank that wrote a marker or failure note."""
    return int(key.rpartition("/")[2].removesuffix(".json"))

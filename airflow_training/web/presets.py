"""The presets that come with us: ordinary job files, of which the first comment lines are title and description."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["FOLDER", "ShippedPreset", "read_preset", "shipped_presets"]

FOLDER = Path(__file__).parents[1] / "presets"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShippedPreset:
    name: str
    """Of its file, without the suffix."""
    title: str
    description: str
    document: str


def read_preset(path: Path) -> ShippedPreset:
    """Read a preset: its first comment line is the title, the comment lines behind it the description."""
    document = path.read_text(encoding="utf-8")
    title, description = _head(document)
    return ShippedPreset(
        name=path.stem, title=title or path.stem, description=description, document=document
    )


@functools.cache
def shipped_presets() -> Sequence[ShippedPreset]:
    """Read the presets that come with the package by their titles, those that need no script of the user's first."""
    found = [read_preset(path) for path in FOLDER.glob("*.yaml")]
    return tuple(sorted(found, key=lambda each: ("\n  trainer:" not in each.document, each.title)))


def _head(document: str) -> tuple[str, str]:
    lines: list[str] = []
    for line in document.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("#").strip())
    return (lines[0].rstrip("."), " ".join(filter(None, lines[1:]))) if lines else ("", "")

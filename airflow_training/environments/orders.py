"""What travels to who makes an environment: which one a run was admitted with, and of what it is made. Data only."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["BuiltinSource", "EnvironmentOrder", "builtin_source", "minor_version"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltinSource:
    """What the built-in environment is made of."""

    package: str
    """Folder of this package."""
    paths: Sequence[str]
    """Folders in which distributions are installed."""
    python: str
    """The interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentOrder:
    """The environment that a run was admitted with, for whoever makes it. It travels as JSON."""

    name: str
    version: str
    digest: str
    storage: str = ""
    """Address of its storage; empty: it is the built-in one."""
    python: str = ""
    """The version of its Python, `3.11.7`."""
    source: BuiltinSource | None = None
    """Of the built-in one."""

    @property
    def title(self) -> str:
        return f"{self.name}@{self.version}"

    def to_json(self) -> Mapping[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> EnvironmentOrder:
        source = document.get("source")
        return cls(**{**document, "source": BuiltinSource(**source) if source else None})


def builtin_source() -> BuiltinSource:
    """What the running Python has: itself, and the folders of packages on its path."""
    return BuiltinSource(
        package=str(Path(__file__).parent.parent),
        paths=[each for each in dict.fromkeys(sys.path) if each.endswith("-packages")],
        python=sys.executable,
    )


def minor_version(python: str) -> str:
    """`3.11` of `3.11.7`."""
    return ".".join(python.split(".")[:2])

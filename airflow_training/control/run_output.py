"""The trained model of a run, as the instance that uploaded it tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["RunOutput"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutput:
    """Where the trained model of a run lies."""

    uri: str
    bytes: int | None = None
    """Of all its files; 0: the output folder was empty."""
    digest: str | None = None

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> RunOutput:
        """Read `{uri, bytes, digest}` of an agent or the store."""
        return cls(
            uri=document.get("uri") or "",
            bytes=document.get("bytes"),
            digest=document.get("digest"),
        )

    def to_document(self) -> dict[str, Any]:
        """The output as `status` prints it."""
        return asdict(self)

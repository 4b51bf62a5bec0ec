"""Reading plain data that may be malformed: what is wrong with it is reported elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["mapping", "mappings"]


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a mapping; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}


def mappings(value: Any) -> Sequence[Mapping[str, Any]]:
    """Return the items of a list, each as a mapping, so that positions stay what they were."""
    return [mapping(item) for item in value] if isinstance(value, list | tuple) else ()

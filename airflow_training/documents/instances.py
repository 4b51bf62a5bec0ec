"""Which instance of a job."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["InstanceKey"]


class InstanceKey(NamedTuple):
    """One instance: its role, and its number among the instances of that role. As text `worker-1`."""

    role: str
    index: int  # type: ignore[assignment]  # tuple has a method of this name

    def __str__(self) -> str:
        return f"{self.role}-{self.index}"

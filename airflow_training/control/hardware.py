"""What an attempt had around it, and what the next one has to find before its command starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["ObservedHardware", "RequiredHardware"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHardware:
    """What an attempt that ran had, by the records of its agent."""

    boot_id: str = ""
    """Of its machine, since it last started; "": unknown."""
    devices: tuple[str, ...] = ()
    """Names of those without an error, when it had most of them."""
    memory_bytes: int = 0
    """Most that its largest process held."""
    at: float = 0.0
    """Of the last record, epoch seconds."""

    def to_document(self) -> dict[str, Any]:
        """The hardware as the ledger and agents store it."""
        return {
            "boot_id": self.boot_id,
            "devices": list(self.devices),
            "memory_bytes": self.memory_bytes,
            "at": self.at,
        }

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> ObservedHardware:
        """Read `to_document`."""
        return cls(
            boot_id=document.get("boot_id", ""),
            devices=tuple(document.get("devices", ())),
            memory_bytes=document.get("memory_bytes", 0),
            at=document.get("at", 0.0),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RequiredHardware:
    """The limits that the agent compares with, and for how long it waits until they are met."""

    timeout_seconds: float
    devices: int | None
    """How many GPUs; None: as many as the attempt before had."""
    memory_share: float
    """Of its limit, that memory may use."""
    memory_pressure: float
    """Percent of ten seconds in which everything may wait for memory."""
    free_bytes: int
    """On its disk."""
    before: ObservedHardware | None = None
    """What the attempt before had; None: none has run."""

    def to_document(self) -> dict[str, Any]:
        """The requirement as an agent's order has it."""
        before = {} if self.before is None else {"before": self.before.to_document()}
        return {
            "timeout_seconds": self.timeout_seconds,
            "devices": self.devices,
            "memory_share": self.memory_share,
            "memory_pressure": self.memory_pressure,
            "free_bytes": self.free_bytes,
            **before,
        }

"""What an attempt had around it, and what the next one has to find before its command starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["NetworkPeers", "ObservedHardware", "RequiredHardware"]


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
class NetworkPeers:
    """Who measures the network with whom, and what it has to be like."""

    port: int
    """At which the instance answers others."""
    peers: tuple[tuple[str, str, int], ...]
    """Whom it asks: name, host, port."""
    asked_by: int
    """How many others ask it."""
    wait_seconds: float
    """For all of them to be there."""
    bandwidth: float
    """Bytes a second to one of those asked; 0: any."""
    latency: float
    """Seconds to one of them and back; 0: any."""

    def to_document(self) -> dict[str, Any]:
        """The peers as an agent's order has them."""
        return {
            "port": self.port,
            "peers": [list(each) for each in self.peers],
            "asked_by": self.asked_by,
            "wait_seconds": self.wait_seconds,
            "bandwidth": self.bandwidth,
            "latency": self.latency,
        }


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
    device_free_bytes: int = 0
    """Of each GPU; 0: any."""
    needs_devices: bool = False
    """That nobody can be asked about them is a lack, too."""
    disk_path: str = ""
    """"": where the instance keeps its own files."""
    disk_bandwidth: float = 0.0
    """Bytes a second that are written and synced; 0: it is not measured."""
    network: NetworkPeers | None = None

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
            **{name: value for name, value in self._measured.items() if value},
        }

    @property
    def _measured(self) -> Mapping[str, Any]:
        return {
            "device_free_bytes": self.device_free_bytes,
            "needs_devices": self.needs_devices,
            "disk_path": self.disk_path,
            "disk_bandwidth": self.disk_bandwidth,
            "network": None if self.network is None else self.network.to_document(),
        }

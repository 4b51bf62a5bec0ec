"""The cluster view: groups of equal nodes, what their devices can do, and the links between them.

Links are described by class, never pair by pair. Times are seconds, sizes bytes, rates bytes or
operations per second, unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """One kind of accelerator (or CPU), as its data sheet and measurements describe it."""

    name: str
    memory_bytes: float
    memory_bandwidth: float
    """Bytes per second of device memory, from the data sheet."""
    peak_flops: Mapping[str, float]
    """Dense operations per second by precision (`fp32`, `tf32`, `fp16`, `bf16`, `fp8`)."""
    matmul_efficiency: float
    """Highest share of the peak that a matrix multiplication was measured to reach."""
    units: int = 0
    """Streaming multiprocessors or compute units, for wave quantisation; 0: not known."""
    launch_seconds: float = 5e-6
    context_bytes: float | None = None
    """Memory that a process takes before its first tensor; None: what it takes on a GPU."""
    source: str = ""

    @property
    def is_host(self) -> bool:
        """Whether it is the host itself: what that does besides takes the device's time."""
        return self.name.startswith("CPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """A class of links: what one endpoint can send at once, and how long a message takes to arrive."""

    name: str
    bandwidth: float
    """Bytes per second and direction of one device (or of one NIC)."""
    latency_seconds: float
    efficiency: float = 0.8
    """Share of the bandwidth that large messages reach."""
    gather_efficiency: float = 1.0
    """Share of the rate of an all-reduce that an all-gather reaches, byte by byte that it sends."""
    scatter_efficiency: float = 1.0
    """The same of a reduce-scatter: where it is made of an all-reduce (gloo), half at most."""
    in_network: bool = False
    """Switches can reduce in the network (NVLink SHARP, InfiniBand SHARP)."""
    wired: tuple[tuple[int, float], ...] = ()
    """Where devices are wired pair by pair: the share of `bandwidth` that a group of so many reaches.

    Ascending; between two sizes it is interpolated. Empty: a switch gives every group all of it.
    """
    source: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeGroup:
    """Equal nodes that stand on one fabric."""

    name: str
    count: int
    device: Device
    devices_per_node: int
    intra_node: Link
    nic: Link | None = None
    """None: the node has no way out (a single machine)."""
    nics_per_node: int = 1
    host_cpus: float = 0.0
    host_memory_bytes: float = 0.0
    price_per_device_hour: float | None = None
    spot_price_per_device_hour: float | None = None
    spot_restarts_per_device_hour: float = 0.0
    efficiency: float = 1.0
    """Below 1 for devices that were measured to be slower than their kind."""

    @property
    def devices(self) -> int:
        return self.count * self.devices_per_node


@dataclass(frozen=True, slots=True, kw_only=True)
class Tier:
    """A level of switches above the nodes."""

    name: str
    nodes: int
    """Nodes below one switch of this tier."""
    oversubscription: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterView:
    """All that cost and search know of a cluster."""

    name: str
    groups: tuple[NodeGroup, ...]
    tiers: tuple[Tier, ...] = ()
    links: Mapping[tuple[str, str], Link] = field(default_factory=dict)
    """Links between two groups by their names in order, where they do not share a fabric."""
    quota: int | None = None
    """Devices that a plan may take at once; None: all of them."""

    @property
    def devices(self) -> int:
        return sum(group.devices for group in self.groups)

    @property
    def usable(self) -> int:
        """Return how many devices a plan may take."""
        return self.devices if self.quota is None else min(self.quota, self.devices)

    def link_between(self, one: str, other: str) -> Link | None:
        """The link from a node of one group to a node of the other; None: there is none.

        Groups on one fabric meet at the rate of the slower NIC.
        """
        given = self.links.get((min(one, other), max(one, other)))
        if given is not None:
            return given
        nics = [group.nic for group in self.groups if group.name in (one, other)]
        known = [nic for nic in nics if nic is not None]
        return min(known, key=lambda nic: nic.bandwidth) if len(known) == len(nics) else None

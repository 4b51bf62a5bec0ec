"""The cluster document: its models, and the JSON Schema made from them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, Tag

from airflow_training.documents.base import discriminate_by_kind, drop_titles
from airflow_training.planning.sources.reading import Document
from airflow_training.planning.view.strategy import Precision

__all__ = [
    "BetweenDocument",
    "ClusterDocument",
    "DeviceDocument",
    "LinkDocument",
    "NodesDocument",
    "TierDocument",
    "cluster_schema",
]

SCHEMA_ID = "https://json-schema.org/draft/2020-12/schema"

Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(gt=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class DeviceDocument(Document):
    """A device that the catalogue does not have, or that was measured."""

    name: Annotated[str, Field(min_length=1)]
    memory_bytes: Positive
    memory_bandwidth: Positive
    """Bytes per second."""
    peak_flops: Annotated[dict[Precision, Positive], Field(min_length=1)]
    """Dense operations per second by precision."""
    matmul_efficiency: Share = 0.75
    """Highest share of the peak that a matrix multiplication reaches."""
    units: Annotated[int, Field(ge=0)] = 0
    """Streaming multiprocessors or compute units; 0: not known."""
    launch_seconds: NotNegative = 5e-6
    context_bytes: NotNegative | None = None
    """Memory that a process takes before its first tensor; left out: what it takes on a GPU."""
    source: str = ""


class LinkDocument(Document):
    """A link that the catalogue does not have, or that was measured."""

    name: Annotated[str, Field(min_length=1)]
    bandwidth: Positive
    """Bytes per second and direction of one device, or of one NIC."""
    latency_seconds: NotNegative
    efficiency: Share = 0.8
    """Share of the bandwidth that large messages reach."""
    gather_efficiency: Share = 1.0
    """Share of the rate of an all-reduce that an all-gather reaches."""
    scatter_efficiency: Share = 1.0
    """Share of the rate of an all-reduce that a reduce-scatter reaches."""
    in_network: bool = False
    """Its switches reduce in the network (NVLink SHARP, InfiniBand SHARP)."""
    wired: list[Annotated[tuple[Count, Share], Field(strict=False)]] = Field(default_factory=list)
    """Where devices are wired pair by pair: the share of the bandwidth groups of so many reach."""
    source: str = ""


_DeviceChoice = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[DeviceDocument, Tag("<object>")],
    discriminate_by_kind(
        "the name of a device or a mapping that describes one", kinds=("<text>", "<object>")
    ),
]
_LinkChoice = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[LinkDocument, Tag("<object>")],
    discriminate_by_kind(
        "the name of a link or a mapping that describes one", kinds=("<text>", "<object>")
    ),
]


class NodesDocument(Document):
    """Equal nodes on one fabric."""

    count: Count
    device: _DeviceChoice
    """A name of the catalogue (`A100-SXM4-80GB`), or a device described here."""
    devices_per_node: Count
    name: str | None = None
    """What links and stages call these nodes; not set: the device's name."""
    intra_node: _LinkChoice | None = None
    """Link between the devices of a node; not set: the one the device usually has."""
    nics_per_node: Annotated[int, Field(ge=0)] = 1
    nic_gbit_s: NotNegative | None = None
    """Rate of one NIC in Gbit/s; 0: there is none."""
    nic: _LinkChoice | None = None
    """Kind of the NICs: `infiniband`, `infiniband-sharp`, `roce`, `efa`, `ethernet`, or a link.

    Not set: InfiniBand from 100 Gbit/s, Ethernet below.
    """
    host_cpus: NotNegative = 0.0
    host_memory_bytes: NotNegative = 0.0
    price_per_device_hour: NotNegative | None = None
    spot_price_per_device_hour: NotNegative | None = None
    spot_restarts_per_device_hour: NotNegative = 0.0
    """How often a spot device is taken away, per hour."""
    efficiency: Share = 1.0
    """Below 1 for devices measured to be slower than their kind."""


class TierDocument(Document):
    """A level of switches above the nodes."""

    name: str
    nodes: Count
    """Nodes below one switch."""
    oversubscription: Annotated[float, Field(ge=1)] = 1.0
    """Rate into the switch from below over the rate out of it upwards."""


class BetweenDocument(Document):
    """The link between two groups of nodes that stand on different fabrics."""

    between: Annotated[list[str], Field(min_length=2, max_length=2)]
    link: _LinkChoice
    """What one node of a group reaches the other group through."""


class ClusterDocument(Document):
    """A cluster: groups of equal nodes, and what joins them."""

    nodes: Annotated[list[NodesDocument], Field(min_length=1)]
    name: str = "cluster"
    tiers: list[TierDocument] = Field(default_factory=list)
    """From the nodes upwards."""
    links: list[BetweenDocument] = Field(default_factory=list)
    """Between groups that do not share a fabric."""
    quota: Annotated[int, Field(ge=0)] | None = None
    """Devices that a plan may take at once; not set: all of them."""


def cluster_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the cluster document.

    Names of devices and links are checked by the catalogue, and what needs two fields by
    `clusters.parse_cluster`: neither is in it.
    """
    schema = ClusterDocument.model_json_schema()
    drop_titles(schema)
    return {"$schema": SCHEMA_ID, "title": "Cluster", **schema}

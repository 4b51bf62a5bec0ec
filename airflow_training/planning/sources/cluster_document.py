"""The cluster document and the view it becomes. Its JSON Schema is made from these models."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import Field, Tag

from airflow_training.errors import InputError, Problem
from airflow_training.planning import catalogue
from airflow_training.planning.cluster import ClusterView, Device, Link, NodeGroup, Tier
from airflow_training.planning.sources.reading import Document, Mistakes, Unknown, read
from airflow_training.planning.strategy import Precision
from airflow_training.spec.base import either
from airflow_training.spec.paths import Loc, format_path
from airflow_training.spec.problems import did_you_mean

__all__ = ["ClusterDocument", "parse_cluster"]

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
    source: str = ""


class LinkDocument(Document):
    """A link that the catalogue does not have, or that was measured."""

    name: Annotated[str, Field(min_length=1)]
    bandwidth: Positive
    """Bytes per second and direction of one device, or of one NIC."""
    latency_seconds: NotNegative
    efficiency: Share = 0.8
    """Share of the bandwidth that large messages reach."""
    in_network: bool = False
    """Its switches reduce in the network (NVLink SHARP, InfiniBand SHARP)."""
    wired: list[Annotated[tuple[Count, Share], Field(strict=False)]] = Field(default_factory=list)
    """Where devices are wired pair by pair: the share of the bandwidth groups of so many reach."""
    source: str = ""


_DeviceChoice = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[DeviceDocument, Tag("<object>")],
    either("the name of a device or a mapping that describes one", kinds=("<text>", "<object>")),
]
_LinkChoice = Annotated[
    Annotated[str, Tag("<text>")] | Annotated[LinkDocument, Tag("<object>")],
    either("the name of a link or a mapping that describes one", kinds=("<text>", "<object>")),
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
    nic_gbit_s: Positive | None = None
    """Rate of one NIC in Gbit/s."""
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


def parse_cluster(data: Any, *, at: Loc = ("cluster",), unknown: Unknown = "refuse") -> ClusterView:
    """Return the view that a cluster document describes.

    Raises:
        InputError: with every mistake of the document, or with every name that nothing has.
    """
    document = read(ClusterDocument, data, at=at, unknown=unknown)
    names = _group_names(document.nodes)
    mistakes = Mistakes()
    groups = []
    for index, nodes in enumerate(document.nodes):
        with mistakes:
            groups.append(_group(nodes, name=names[index], at=(*at, "nodes", index)))
    links = {}
    for index, joined in enumerate(document.links):
        place = (*at, "links", index)
        mistakes += _unknown_groups(joined, names, at=place)
        with mistakes:
            pair = (min(joined.between), max(joined.between))
            links[pair] = _link(joined.link, at=(*place, "link"))
    mistakes += _repeated(names, document.nodes, at=at)
    mistakes += _shrinking_tiers(document.tiers, at=at)
    mistakes.complain()
    view = ClusterView(
        name=document.name,
        groups=tuple(groups),
        tiers=tuple(Tier(**tier.model_dump()) for tier in document.tiers),
        links=links,
    )
    mistakes += _unreachable(view, at=at)
    mistakes.complain()
    return view


def _group_names(groups: Sequence[NodesDocument]) -> list[str]:
    """Return a name for each group; where devices repeat, those not named are numbered."""
    kinds = [_kind(nodes.device) for nodes in groups]
    seen: Counter[str] = Counter()
    names = []
    for nodes, kind in zip(groups, kinds, strict=True):
        seen[kind] += 1
        names.append(nodes.name or (f"{kind}-{seen[kind]}" if kinds.count(kind) > 1 else kind))
    return names


def _kind(choice: str | DeviceDocument) -> str:
    if not isinstance(choice, str):
        return choice.name
    try:
        return catalogue.device(choice).name
    except InputError:  # said once, where the group is read
        return choice


def _group(nodes: NodesDocument, *, name: str, at: Loc) -> NodeGroup:
    mistakes = Mistakes()
    device, intra, nic = None, None, None
    with mistakes:
        device = _device(nodes.device, at=(*at, "device"))
        intra = _intra_node(nodes, device, at=(*at, "intra_node"))
    with mistakes:
        nic = _nic(nodes, at=(*at, "nic"))
    if device is None or intra is None or mistakes:
        raise InputError(problems=mistakes)
    return NodeGroup(
        name=name,
        device=device,
        intra_node=intra,
        nic=nic,
        **nodes.model_dump(exclude={"name", "device", "intra_node", "nic", "nic_gbit_s"}),
    )


def _device(choice: str | DeviceDocument, *, at: Loc) -> Device:
    if isinstance(choice, str):
        return catalogue.device(choice, field=format_path(at))
    return Device(**choice.model_dump())


def _link(choice: str | LinkDocument, *, at: Loc) -> Link:
    if isinstance(choice, str):
        return catalogue.link(choice, field=format_path(at))
    return Link(**{**choice.model_dump(), "wired": tuple(sorted(choice.wired))})


def _intra_node(nodes: NodesDocument, device: Device, *, at: Loc) -> Link:
    if nodes.intra_node is not None:
        return _link(nodes.intra_node, at=at)
    usual = catalogue.usual_link(device.name)
    if usual is None:
        problem = Problem(
            code="missing",
            field=format_path(at),
            message=f"is required: nothing is known of how devices '{device.name}' are joined",
            allowed=catalogue.link_names(),
        )
        raise InputError(problems=[problem])
    return usual


def _nic(nodes: NodesDocument, *, at: Loc) -> Link | None:
    if nodes.nics_per_node == 0:
        return None
    if isinstance(nodes.nic, LinkDocument):
        return _link(nodes.nic, at=at)
    if nodes.nic_gbit_s is None:
        return None if nodes.nic is None else _link(nodes.nic, at=at)
    if nodes.nic is None:
        return catalogue.network(nodes.nic_gbit_s)
    return _link(f"{nodes.nic}-{nodes.nic_gbit_s:g}", at=at)


def _unknown_groups(joined: BetweenDocument, names: Sequence[str], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="not_allowed",
            field=format_path((*at, "between", place)),
            value=group,
            message="is not the name of a group of nodes",
            allowed=names,
            hint=did_you_mean(group, names),
        )
        for place, group in enumerate(joined.between)
        if group not in names
    ]


def _repeated(names: Sequence[str], groups: Sequence[NodesDocument], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="duplicate",
            field=format_path((*at, "nodes", index, "name")),
            value=name,
            message="another group of nodes has this name",
        )
        for index, name in enumerate(names)
        if name in names[:index] and groups[index].name is not None
    ]


def _shrinking_tiers(tiers: Sequence[TierDocument], *, at: Loc) -> list[Problem]:
    return [
        Problem(
            code="out_of_range",
            field=format_path((*at, "tiers", index, "nodes")),
            value=tier.nodes,
            message=f"must be more than the {below.nodes} nodes of the tier below",
        )
        for index, (below, tier) in enumerate(itertools.pairwise(tiers), start=1)
        if tier.nodes <= below.nodes
    ]


def _unreachable(view: ClusterView, *, at: Loc) -> list[Problem]:
    problems = [
        Problem(
            code="missing",
            field=format_path((*at, "nodes", index, "nic_gbit_s")),
            message=f"is required: {group.count} nodes reach each other through a NIC",
        )
        for index, group in enumerate(view.groups)
        if group.count > 1 and group.nic is None
    ]
    return problems + [
        Problem(
            code="missing",
            field=format_path((*at, "links")),
            message=f"nothing joins '{one.name}' and '{other.name}': give both NICs, or a link",
        )
        for one, other in itertools.combinations(view.groups, 2)
        if view.link_between(one.name, other.name) is None
    ]

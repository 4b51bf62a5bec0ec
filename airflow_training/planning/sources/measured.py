"""A cluster view from what `examples/measure_cluster/measure.py` measured on the cluster itself."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, get_args

import numpy as np
from pydantic import Field

from airflow_training.documents.paths import Loc
from airflow_training.errors import InputError
from airflow_training.planning.cost.collectives import frozen
from airflow_training.planning.sources.reading import Document, read
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import ClusterView, Device, Link, NodeGroup
from airflow_training.planning.view.strategy import Precision

__all__ = ["MeasuredLink", "cluster_of_measurement", "links_of_metrics", "with_links"]

_SLOWER = 0.95
"""A node below this share of its kind's median is a group of its own, so that work can avoid it."""
_ASSUMED_EFFICIENCY = 0.9
"""Of a device without a data sheet: its peak is what was measured, over this."""

_Positive = Annotated[float, Field(gt=0)]


_Kind = Literal["intra_node", "inter_node"]
_KINDS: tuple[_Kind, ...] = get_args(_Kind)
_REPORTED = ("pairs", "latency_seconds", "bandwidth")
"""Fields of a link that a measurement reports as metrics."""
_COLLECTIVES = ("allreduce_bandwidth", "allgather_bandwidth", "reduce_scatter_bandwidth")
"""Those that it may report besides."""


class _Rank(Document):
    host: str
    device: str
    memory_bytes: _Positive
    matmul_flops: Annotated[dict[Precision, _Positive], Field(min_length=1)]
    """Operations per second of one large multiplication."""
    memory_bandwidth: _Positive
    """Bytes read and written per second by a copy."""
    units: Annotated[int, Field(ge=0)] = 0
    host_cpus: Annotated[float, Field(ge=0)] = 0.0
    host_memory_bytes: Annotated[float, Field(ge=0)] = 0.0


class MeasuredLink(Document):
    """What pairs of ranks inside a node, or on two nodes, reached."""

    kind: _Kind
    pairs: Annotated[int, Field(ge=1)]
    """How many pairs of ranks talked at once."""
    latency_seconds: _Positive
    """Of one way of a small message."""
    bandwidth: _Positive
    """Bytes per second of one pair."""
    allreduce_bandwidth: _Positive | None = None
    """Bytes per second that one pair sends in an all-reduce; None: it was not measured."""
    allgather_bandwidth: _Positive | None = None
    """The same in an all-gather."""
    reduce_scatter_bandwidth: _Positive | None = None
    """The same in a reduce-scatter."""

    @property
    def rate(self) -> float:
        """Bytes per second of one pair in a collective, which is most of what a step moves."""
        return self.allreduce_bandwidth or self.bandwidth

    @property
    def gather_share(self) -> float:
        """Share of `rate` that an all-gather reaches."""
        return min(1.0, (self.allgather_bandwidth or self.rate) / self.rate)

    @property
    def scatter_share(self) -> float:
        """Share of `rate` that a reduce-scatter reaches."""
        return min(1.0, (self.reduce_scatter_bandwidth or self.rate) / self.rate)


class _Measurement(Document):
    ranks: Annotated[list[_Rank], Field(min_length=1)]
    links: list[MeasuredLink] = Field(default_factory=list)


def cluster_of_measurement(data: Any, /, *, at: Loc = ("measurement",)) -> ClusterView:
    """Return the cluster that a measurement was made on.

    A device of the catalogue keeps its data sheet and takes the measured share of its peak; another one
    is described by its measurement alone. What was not measured (a link that no two ranks had) is that
    of the catalogue. Nodes that are slower than their kind become groups of their own.

    Raises:
        InputError: with every mistake of the document, or nodes whose network was not measured.
    """
    document = read(_Measurement, data, at=at)
    links: Mapping[str, MeasuredLink] = {link.kind: link for link in document.links}
    nodes: dict[str, list[_Rank]] = defaultdict(list)
    for rank in document.ranks:
        nodes[rank.host].append(rank)
    if len(nodes) > 1 and "inter_node" not in links:
        raise InputError.of(
            code="missing",
            field=".".join(str(part) for part in (*at, "links")),
            message=f"says nothing of the network between {len(nodes)} nodes",
        )
    return ClusterView(name="measured", groups=_groups(list(nodes.values()), links))


def links_of_metrics(metrics: Mapping[str, float]) -> tuple[MeasuredLink, ...]:
    """Return the links that a measurement reported as metrics: `inter_node_bandwidth`, ..."""
    found = []
    for kind in _KINDS:
        pairs, latency, bandwidth = (metrics.get(f"{kind}_{name}", 0.0) for name in _REPORTED)
        if pairs >= 1 and latency > 0 and bandwidth > 0:
            link = MeasuredLink(
                kind=kind,
                pairs=int(pairs),
                latency_seconds=latency,
                bandwidth=bandwidth,
                **{name: metrics.get(f"{kind}_{name}") or None for name in _COLLECTIVES},
            )
            found.append(link)
    return tuple(found)


def with_links(group: NodeGroup, links: Sequence[MeasuredLink]) -> NodeGroup:
    """Return a group of nodes with the links that were measured on it, the others as they were."""
    for link in links:
        if link.kind == "intra_node":
            group = replace(group, intra_node=_intra_node(group.device, link))
        else:
            group = replace(group, nic=_network(link), nics_per_node=1)
    return group


def _groups(
    nodes: Sequence[Sequence[_Rank]], links: Mapping[str, MeasuredLink]
) -> tuple[NodeGroup, ...]:
    kinds: dict[tuple[str, int], list[Sequence[_Rank]]] = defaultdict(list)
    for ranks in nodes:
        kinds[ranks[0].device, len(ranks)].append(ranks)
    named = [kind for kind, _ in kinds]
    groups = []
    for (kind, count), members in kinds.items():
        label = kind if named.count(kind) == 1 else f"{kind}-x{count}"
        usual = statistics.median(map(_speed, members))
        steady = [ranks for ranks in members if _speed(ranks) >= _SLOWER * usual]
        whole = _group(label, members, links)
        groups.append(replace(whole, count=len(steady)))
        groups += [
            replace(
                whole, name=f"{label}-{ranks[0].host}", count=1, efficiency=_speed(ranks) / usual
            )
            for ranks in members
            if _speed(ranks) < _SLOWER * usual
        ]
    return tuple(groups)


def _speed(ranks: Sequence[_Rank]) -> float:
    """Return how fast a node's slowest device multiplies: a step waits for it."""
    return min(max(rank.matmul_flops.values()) for rank in ranks)


def _group(
    label: str, nodes: Sequence[Sequence[_Rank]], links: Mapping[str, MeasuredLink]
) -> NodeGroup:
    ranks = [rank for node in nodes for rank in node]
    device = _device(ranks)
    outside = links.get("inter_node")
    return NodeGroup(
        name=label,
        count=len(nodes),
        device=device,
        devices_per_node=len(nodes[0]),
        intra_node=_intra_node(device, links.get("intra_node")),
        nic=None if outside is None else _network(outside),
        host_cpus=min(rank.host_cpus for rank in ranks),
        host_memory_bytes=min(rank.host_memory_bytes for rank in ranks),
    )


def _device(ranks: Sequence[_Rank]) -> Device:
    measured = {
        precision: statistics.median(rank.matmul_flops[precision] for rank in ranks)
        for precision in ranks[0].matmul_flops
        if all(precision in rank.matmul_flops for rank in ranks)
    }
    memory = min(rank.memory_bytes for rank in ranks)
    try:
        known = catalogue.device(ranks[0].device)
    except InputError:
        known = None
    # what the catalogue says of a CPU is a guess
    if known is None or known.is_host:
        return Device(
            name=ranks[0].device,
            memory_bytes=memory,
            memory_bandwidth=statistics.median(rank.memory_bandwidth for rank in ranks),
            peak_flops={key: rate / _ASSUMED_EFFICIENCY for key, rate in measured.items()},
            matmul_efficiency=_ASSUMED_EFFICIENCY,
            units=ranks[0].units,
            context_bytes=known.context_bytes if known else None,
            source="measured",
        )
    shares = [measured[key] / peak for key, peak in known.peak_flops.items() if key in measured]
    return replace(
        known,
        memory_bytes=memory,
        matmul_efficiency=min(1.0, max(shares, default=known.matmul_efficiency)),
        source=f"{known.source}; matrix rate and memory measured",
    )


def _intra_node(device: Device, measured: MeasuredLink | None) -> Link:
    usual = catalogue.usual_link(device.name)
    if measured is None:
        return usual or catalogue.link("shared-memory")
    latency = _latency(measured)
    if usual is None or usual.name == "shared-memory":
        return Link(
            name="measured-intra-node",
            bandwidth=measured.rate,
            latency_seconds=latency,
            efficiency=1.0,
            source="measured",
            gather_efficiency=measured.gather_share,
            scatter_efficiency=measured.scatter_share,
        )
    pair = usual.bandwidth * _pair_share(usual)
    return replace(
        usual,
        name=f"{usual.name}-measured",
        latency_seconds=latency,
        efficiency=min(1.0, measured.rate / pair),
        source=f"{usual.source}; latency and efficiency measured",
        gather_efficiency=measured.gather_share,
        scatter_efficiency=measured.scatter_share,
    )


def _pair_share(link: Link) -> float:
    if not link.wired:
        return 1.0
    sizes, shares = zip(*link.wired, strict=True)
    return float(np.interp(2, sizes, shares))


def _network(measured: MeasuredLink) -> Link:
    """Return all NICs of a node as one: how many there are cannot be seen from inside."""
    return Link(
        name="measured-network",
        bandwidth=measured.rate * measured.pairs,
        latency_seconds=_latency(measured),
        efficiency=1.0,
        source=f"measured with {measured.pairs} pairs of ranks at once",
        gather_efficiency=measured.gather_share,
        scatter_efficiency=measured.scatter_share,
    )


def _latency(measured: MeasuredLink) -> float:
    """Return what the link itself takes: without what starting any collective takes."""
    started = frozen().base_seconds + frozen().fill_seconds
    return max(1e-6, measured.latency_seconds - started)

"""How long a collective takes: latency and bandwidth by algorithm, the fastest one counts.

All algorithms share one form, that of a pipelined transfer cut into its best number of chunks (Thakur,
Rabenseifner, Gropp 2005, "Optimization of Collective Communication Operations in MPICH"):

    base + hops * latency + (sqrt(wire) + sqrt(fill)) ** 2

`wire` is the time the busiest link carries bytes; `fill` the time one chunk takes to run through. Which
bytes cross which link follows nccl-tests (PERFORMANCE.md) and NCCL (src/graph/tuning.cc). The constants
are fitted by `benchmarks/fit_collectives.py`; their provenance is in `data/collectives.json`.
"""

from __future__ import annotations

import functools
import importlib.resources
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from airflow_training.planning.cost.group import RankGroup
from airflow_training.planning.view.cluster import Link
from airflow_training.planning.view.program import Collective, Number

__all__ = ["Algorithm", "Protocol", "algorithms", "environment", "fastest", "frozen", "seconds"]

Algorithm = Literal["ring", "tree", "in-network", "hierarchical", "pairwise"]
"""`hierarchical`: reduced in the node's switch, by a tree between nodes (NCCL's NVLSTree).

`in-network` in one node is NVLink SHARP, between nodes InfiniBand SHARP.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """What is not a property of a link. Seconds."""

    base_seconds: float
    """From the start of the kernels until all ranks take part."""
    fill_seconds: float
    """One chunk through the pipeline."""
    in_network_seconds: float
    """What a reduction in a switch takes more, whatever its size."""
    in_network_efficiency: float
    """Share of a link's bandwidth that a reduction in its switch reaches."""
    tree_efficiency: float
    """Of what a ring reaches between nodes, the share that a tree does."""


@functools.cache
def frozen() -> Protocol:
    """Return the fitted constants."""
    text = importlib.resources.files("airflow_training.planning").joinpath(
        "data", "collectives.json"
    )
    return Protocol(**json.loads(text.read_text("utf-8"))["constants"])


def seconds(
    collective: Collective,
    payload_bytes: Number,
    group: RankGroup,
    *,
    protocol: Protocol | None = None,
) -> Number:
    """Return the time of one collective, by its fastest algorithm; 0 for a group of one rank.

    Args:
        collective: which one.
        payload_bytes: `size` of nccl-tests: the tensor that every rank reduces or broadcasts, the
            whole tensor that is gathered or scattered, what each rank sends in all for
            `all_to_all`, and the message for `send_recv`.
        group: the ranks, and what lies between them.
        protocol: other constants than the frozen ones.
    """
    times = algorithms(collective, payload_bytes, group, protocol=protocol)
    best = functools.reduce(np.minimum, times.values())
    found: Number = np.where(np.asarray(group.ranks) > 1, best, 0.0)[()]
    return found


def fastest(collective: Collective, payload_bytes: float, group: RankGroup) -> Algorithm:
    """Return which algorithm `seconds` counts with, for plain numbers."""
    times = algorithms(collective, payload_bytes, group)
    return min(times, key=lambda name: float(times[name]))


def bytes_gathered_meanwhile(group: RankGroup) -> Number:
    """Return how many bytes an all-gather moves while a reduce-scatter of the same group moves one."""
    return _share("all_gather", group) / _share("reduce_scatter", group)


def environment(collective: Collective, payload_bytes: float, group: RankGroup) -> dict[str, str]:
    """Return NCCL variables that ask for the fastest algorithm and are safe wherever they are set.

    `NCCL_ALGO` is never among them: it binds every collective, those too that lack the algorithm.
    `NCCL_COLLNET_ENABLE` is: NCCL falls back where the switches or the plugin cannot do it.
    """
    spread = float(np.max(group.nodes)) > 1
    if spread and fastest(collective, payload_bytes, group) == "in-network":
        return {"NCCL_COLLNET_ENABLE": "1"}
    return {}


def algorithms(
    collective: Collective,
    payload_bytes: Number,
    group: RankGroup,
    *,
    protocol: Protocol | None = None,
) -> Mapping[Algorithm, Number]:
    """Return the time of every algorithm that the links can run; infinite where one cannot be used.

    Arguments as in `seconds`.
    """
    way = _LinkPath.of(group, protocol or frozen())
    payload = np.asarray(payload_bytes, dtype=float)
    # nodes without a NIC reach each other at a rate of 0: never, and at once with nothing to say
    with np.errstate(divide="ignore", invalid="ignore"):
        times = _algorithms(collective, payload, way)
    return {name: np.where(np.isnan(time), 0.0, time) for name, time in times.items()}


def _algorithms(
    collective: Collective, payload: Number, way: _LinkPath
) -> Mapping[Algorithm, Number]:
    if collective == "all_reduce":
        return _all_reduce(payload, way)
    if collective in ("all_gather", "reduce_scatter"):
        return {"ring": way.ring(payload / _share(collective, way.group), rounds=1)}
    if collective == "broadcast":
        return {"ring": way.chain(payload), "tree": way.broadcast_tree(payload)}
    if collective == "all_to_all":
        return {"pairwise": way.pairwise(payload)}
    return {"pairwise": way.message(payload)}


def _share(collective: Collective, group: RankGroup) -> Number:
    """Return the share of an all-reduce's rate that an all-gather or a reduce-scatter reaches."""
    name = "gather_efficiency" if collective == "all_gather" else "scatter_efficiency"
    inside: float = getattr(group.intra_node, name)
    outside: float = inside if group.nic is None else getattr(group.nic, name)
    if inside == outside:
        return inside
    return np.where(np.asarray(group.nodes) > 1, outside, inside)


def _all_reduce(payload: Number, way: _LinkPath) -> Mapping[Algorithm, Number]:
    times: dict[Algorithm, Number] = {"ring": way.ring(payload, rounds=2)}
    if way.spreads.any():
        times["tree"] = np.where(way.spreads, way.tree(payload), np.inf)
        if way.group.nic is not None and way.group.nic.in_network:
            times["in-network"] = np.where(way.spreads, way.switched_fabric(payload), np.inf)
    if way.group.intra_node.in_network:
        whole_node = np.asarray(way.per_node) > 2
        inside = np.where(~way.spreads & whole_node, way.switched_node(payload), np.inf)
        times["in-network"] = np.minimum(times.get("in-network", np.inf), inside)
        if way.spreads.any():
            across = way.node_switches_and_tree(payload)
            times["hierarchical"] = np.where(way.spreads & whole_node, across, np.inf)
    return times


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinkPath:
    """What bytes meet on their way through a group. Rates are bytes per second of one node or rank."""

    group: RankGroup
    protocol: Protocol
    ranks: Number
    per_node: Number
    nodes: Number
    spreads: np.ndarray
    """Whether the group leaves its node."""
    inside: Number
    """Rate of one rank to its peers in the node."""
    outside: Number
    """Rate of the group's share of a node's NICs; infinite where it stays inside."""
    hop_inside: float
    hop_outside: float

    @classmethod
    def of(cls, group: RankGroup, protocol: Protocol) -> _LinkPath:
        nodes = np.asarray(group.nodes, dtype=float)
        spreads = nodes > 1
        nic = group.nic
        if nic is None:
            outside: Number = np.where(spreads, 0.0, np.inf)
        else:
            share = group.nics_per_node / np.asarray(group.siblings * group.oversubscription)
            outside = np.where(spreads, nic.bandwidth * nic.efficiency * share, np.inf)
        return cls(
            group=group,
            protocol=protocol,
            ranks=np.asarray(group.ranks, dtype=float),
            per_node=np.asarray(group.per_node, dtype=float),
            nodes=nodes,
            spreads=spreads,
            inside=_rate(group.intra_node, group.per_node),
            outside=outside,
            hop_inside=group.intra_node.latency_seconds,
            hop_outside=0.0 if nic is None else nic.latency_seconds,
        )

    def _time(self, *, wire: Number, hops: Number) -> Number:
        fill = self.protocol.fill_seconds
        through: Number = (np.sqrt(wire) + np.sqrt(fill)) ** 2
        return self.protocol.base_seconds + hops + through

    def _slowest(self) -> Number:
        alone = np.asarray(self.per_node) <= 1
        return np.minimum(np.where(alone & self.spreads, np.inf, self.inside), self.outside)

    def _ring_hops(self) -> Number:
        crossing = np.where(self.spreads, self.nodes, 0.0)
        within = np.maximum(0.0, self.ranks - 1.0 - crossing)
        return within * self.hop_inside + crossing * self.hop_outside

    def ring(self, payload: Number, *, rounds: int) -> Number:
        """Every rank passes on n-1 of n parts, twice for an all-reduce.

        NCCL runs one ring per NIC (or more), so each carries its share of the payload through its own.
        """
        wire = rounds * payload * (self.ranks - 1.0) / self.ranks / self._slowest()
        return self._time(wire=wire, hops=rounds * self._ring_hops())

    def tree(self, payload: Number) -> Number:
        """Two binary trees over the nodes, a chain in each: every NIC carries the payload twice."""
        rate = np.minimum(self.outside * self.protocol.tree_efficiency, self.inside)
        return self._time(wire=2.0 * payload / rate, hops=self._tree_hops())

    def node_switches_and_tree(self, payload: Number) -> Number:
        """The node's switch reduces; NICs carry what a tree of whole nodes needs (NVLSTree)."""
        crossing = 2.0 * payload * (self.nodes - 1.0) / self.nodes / self.outside
        wire = np.maximum(crossing / self.protocol.tree_efficiency, self._switch_wire(payload))
        return self.protocol.in_network_seconds + self._time(
            wire=wire, hops=2.0 * np.log2(self.nodes) * self.hop_outside
        )

    def switched_node(self, payload: Number) -> Number:
        """The node's switch reduces and multicasts (NVLink SHARP)."""
        return self.protocol.in_network_seconds + self._time(
            wire=self._switch_wire(payload), hops=0.0
        )

    def switched_fabric(self, payload: Number) -> Number:
        """Switches above the nodes reduce: every NIC carries the payload once each way (SHARP)."""
        rate = np.minimum(self.outside * self.protocol.tree_efficiency, self.inside)
        hops = 2.0 * (self.hop_outside + (self.per_node - 1.0) * self.hop_inside)
        return self.protocol.in_network_seconds + self._time(wire=payload / rate, hops=hops)

    def broadcast_tree(self, payload: Number) -> Number:
        """One way down the two trees."""
        rate = np.minimum(self.outside * self.protocol.tree_efficiency, self.inside)
        return self._time(wire=payload / rate, hops=self._tree_hops() / 2.0)

    def chain(self, payload: Number) -> Number:
        """Every rank hands all of it to the next one."""
        return self._time(wire=payload / self._slowest(), hops=self._ring_hops())

    def pairwise(self, payload: Number) -> Number:
        """Every rank sends a part to each other one; those of a node share its NICs."""
        inside = payload * (self.per_node - 1.0) / self.ranks / self.inside
        leaving = payload * (self.ranks - self.per_node) / self.ranks
        outside = self.per_node * leaving / self.outside
        return self._time(wire=np.maximum(inside, outside), hops=self._ring_hops())

    def message(self, payload: Number) -> Number:
        """Every rank sends to its neighbour at once.

        Between ranks of one node by the link of a pair. Across nodes a rank has one NIC at most, or its
        share of one.
        """
        nic = self.group.nic
        one_nic = np.inf if nic is None else nic.bandwidth * nic.efficiency
        shared = self.outside / self.per_node
        crossing = np.minimum(one_nic / self.group.oversubscription, shared)
        wire = payload / np.where(self.spreads, crossing, _rate(self.group.intra_node, 2.0))
        hop: Number = np.where(self.spreads, self.hop_outside, self.hop_inside)
        return self._time(wire=wire, hops=hop)

    def _switch_wire(self, payload: Number) -> Number:
        """Each rank reads its part reduced and writes it multicast: n+1 of n parts each way."""
        rate = self.group.intra_node.bandwidth * self.protocol.in_network_efficiency
        return payload * (self.per_node + 1.0) / self.per_node / rate

    def _tree_hops(self) -> Number:
        levels = np.ceil(np.log2(np.maximum(self.nodes, 1.0)))
        return 2.0 * (levels * self.hop_outside + (self.per_node - 1.0) * self.hop_inside)


def _rate(link: Link, ranks: Number) -> Number:
    """Return what one of so many ranks on a link reaches."""
    rate = link.bandwidth * link.efficiency
    if not link.wired:
        return np.full(np.shape(ranks), rate)
    sizes, shares = zip(*link.wired, strict=True)
    reached: Number = rate * np.interp(np.asarray(ranks, dtype=float), sizes, shares)
    return reached

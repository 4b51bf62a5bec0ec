"""What earlier or running runs measured, put in the place of what was worked out.

Pure: measurements come as plain data (from the store, from a micro-benchmark job), estimates go out with
every part marked by its origin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_training.planning.cluster import ClusterView, Link, NodeGroup
from airflow_training.planning.plan import Estimate, Part

_REPEATS = 0.03
"""Share by which equal runs differ from one to the next; what a measured step is known by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurements:
    """Numbers of runs on one cluster; what nobody measured is left out."""

    link_bandwidth: Mapping[str, float] = field(default_factory=dict)
    """Bytes per second that large messages reached, by the name of the link."""
    device_efficiency: Mapping[str, float] = field(default_factory=dict)
    """Speed against the kind of device, by the name of the group of nodes."""
    step_seconds: float | None = None
    """Of a run of the same strategy."""
    time_parts: Mapping[str, float] = field(default_factory=dict)
    """Seconds of parts of that step, by the names of the breakdown."""
    memory_bytes: float | None = None
    """Peak of the fullest device of that run."""


def measured_cluster(cluster: ClusterView, found: Measurements) -> ClusterView:
    """Return the cluster with the rates that were measured on it."""

    def link(whole: Link) -> Link:
        rate = found.link_bandwidth.get(whole.name)
        return whole if rate is None else replace(whole, bandwidth=rate, efficiency=1.0)

    def group(nodes: NodeGroup) -> NodeGroup:
        return replace(
            nodes,
            intra_node=link(nodes.intra_node),
            nic=None if nodes.nic is None else link(nodes.nic),
            efficiency=found.device_efficiency.get(nodes.name, nodes.efficiency),
        )

    return replace(
        cluster,
        groups=tuple(group(nodes) for nodes in cluster.groups),
        links={pair: link(between) for pair, between in cluster.links.items()},
    )


def measured_estimate(estimate: Estimate, found: Measurements) -> Estimate:
    """Return the estimate with measured parts in place of those worked out.

    Parts that were measured count as they are. Where the step was measured too, the other parts share
    what is left of it in the proportions they were worked out in.
    """
    parts = [
        replace(part, value=found.time_parts[part.name], origin="measured")
        if part.name in found.time_parts
        else part
        for part in estimate.time
    ]
    memory = estimate.memory
    if found.memory_bytes is not None:
        memory = _filled(memory, found.memory_bytes)
    if found.step_seconds is None:
        seconds = sum(part.value for part in parts)
        scale = seconds / estimate.step_seconds
        low, high = estimate.p10 * scale, estimate.p90 * scale
    else:
        seconds = found.step_seconds
        parts = _filled(parts, seconds)
        low, high = seconds * (1.0 - _REPEATS), seconds * (1.0 + _REPEATS)
    price = estimate.price_per_step
    return replace(
        estimate,
        step_seconds=seconds,
        p10=low,
        p90=high,
        time=parts,
        memory=memory,
        memory_bytes=found.memory_bytes or estimate.memory_bytes,
        price_per_step=price and price * seconds / estimate.step_seconds,
    )


def _filled(parts: Sequence[Part], total: float) -> list[Part]:
    """Return the parts with those not measured scaled so that all add up to what was measured."""
    known = sum(part.value for part in parts if part.origin == "measured")
    other = sum(part.value for part in parts if part.origin != "measured")
    scale = max(0.0, total - known) / other if other else 0.0
    return [
        part
        if part.origin == "measured"
        else replace(part, value=part.value * scale, origin="measured")
        for part in parts
    ]

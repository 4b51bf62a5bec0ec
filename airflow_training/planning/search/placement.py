"""Where a plan's mesh lies on the topology: which axis stays in a node, which crosses which switches."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.planning.view.cluster import ClusterView, NodeGroup
from airflow_training.planning.view.strategy import Strategy

ORDER = ("tp", "cp", "dp", "pp")
"""Mesh axes, innermost first (Megatron-LM's order: Narayanan et al. 2021, section 3)."""


def placement(strategy: Strategy, cluster: ClusterView) -> dict[str, object]:
    """Return the level of the topology of every mesh axis, and the devices of every stage.

    An axis has a `size`, a `stride` (ranks between neighbours) and a `level`: `device` (it is 1), `node`,
    the name of a tier of switches, or `cluster`.
    """
    by_name = {group.name: group for group in cluster.groups}
    names = strategy.stage_devices or (cluster.groups[0].name,) * strategy.pp
    smallest = min((by_name[name] for name in names), key=lambda group: group.devices_per_node)
    axes: dict[str, object] = {}
    stride = 1
    for axis in ORDER:
        ranks = getattr(strategy, axis)
        span = stride * ranks
        axes[axis] = {
            "size": ranks,
            "stride": stride,
            "level": _level(ranks, span, smallest, cluster),
        }
        stride = span
    axes["ep"] = {
        "size": strategy.ep,
        "stride": strategy.tp,
        "level": _ep_level(strategy, smallest, cluster),
    }
    return {"order": list(ORDER), "axes": axes, "stages": _stages(strategy, names, by_name)}


def _ep_level(strategy: Strategy, group: NodeGroup, cluster: ClusterView) -> str:
    return _level(strategy.ep, strategy.tp * strategy.ep, group, cluster)


def _level(ranks: int, span: int, group: NodeGroup, cluster: ClusterView) -> str:
    if ranks == 1:
        return "device"
    if span <= group.devices_per_node:
        return "node"
    nodes = -(-span // group.devices_per_node)
    for tier in sorted(cluster.tiers, key=lambda tier: tier.nodes):
        if nodes <= tier.nodes:
            return tier.name
    return "cluster"


def _stages(
    strategy: Strategy, names: tuple[str, ...], groups: Mapping[str, NodeGroup]
) -> list[dict[str, object]]:
    """Number the devices of each group by itself: stages on a group take them one after the other."""
    per_stage = strategy.devices // strategy.pp
    taken = dict.fromkeys(groups, 0)
    found: list[dict[str, object]] = []
    for stage, name in enumerate(names):
        first = taken[name]
        taken[name] += per_stage
        found.append(
            {
                "stage": stage,
                "group": name,
                "device": groups[name].device.name,
                "first_device": first,
                "devices": per_stage,
            }
        )
    return found

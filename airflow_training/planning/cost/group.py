"""Groups of ranks that communicate, and what lies between them.

Ranks are laid out innermost first: a mesh axis of `size` ranks whose inner axes hold `stride` ranks
joins every `stride`-th device. Sizes and strides may be arrays of one shape.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from airflow_training.planning.view.cluster import Link, NodeGroup, Tier
from airflow_training.planning.view.program import Number

__all__ = ["RankGroup", "group_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroup:
    """Equal ranks spread evenly over nodes."""

    ranks: Number
    per_node: Number
    """Ranks of the group on each of its nodes."""
    intra_node: Link
    nic: Link | None
    nics_per_node: int = 1
    siblings: Number = 1.0
    """Groups that use the NICs of a node at the same time, this one among them."""
    oversubscription: Number = 1.0
    """By how much the switches above the nodes narrow the way between them."""

    @property
    def nodes(self) -> Number:
        """Return over how many nodes the group spreads."""
        return np.ceil(self.ranks / self.per_node)


def group_of(
    nodes: NodeGroup, *, size: Number, stride: Number = 1.0, tiers: Sequence[Tier] = ()
) -> RankGroup:
    """Return the group of one mesh axis on equal nodes, all of whose devices are in use.

    Every device of a node belongs to some group of the axis, so groups that leave the node share its
    NICs. A node counts as below one switch with its neighbours: placement fills switches in order.
    """
    within = np.maximum(1.0, nodes.devices_per_node // np.asarray(stride, dtype=float))
    per_node = np.minimum(size, within)
    spread = np.ceil(size / per_node)
    nodes_apart = np.maximum(1.0, np.asarray(stride) / nodes.devices_per_node)
    span = (spread - 1.0) * nodes_apart + 1.0
    narrowing: Number = 1.0
    for tier in tiers:
        narrowing = np.where(span > tier.nodes, narrowing * tier.oversubscription, narrowing)
    return RankGroup(
        ranks=size,
        per_node=per_node,
        intra_node=nodes.intra_node,
        nic=nodes.nic,
        nics_per_node=nodes.nics_per_node,
        siblings=np.maximum(1.0, nodes.devices_per_node / per_node),
        oversubscription=narrowing,
    )

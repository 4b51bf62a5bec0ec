"""Which ranks of a mesh axis share a node, and who else uses its NICs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.planning.cost.group import group_of
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import NodeGroup, Tier

NODES = NodeGroup(
    name="a100",
    count=16,
    device=catalogue.device("A100"),
    devices_per_node=8,
    intra_node=catalogue.link("nvlink3"),
    nic=catalogue.link("infiniband-200"),
    nics_per_node=4,
)


@pytest.mark.parametrize(
    ("size", "stride", "per_node", "nodes", "siblings"),
    [
        pytest.param(8, 1, 8, 1, 1, id="a-whole-node"),
        pytest.param(4, 1, 4, 1, 2, id="half-a-node"),
        pytest.param(4, 2, 4, 1, 2, id="every-second-device"),
        pytest.param(16, 1, 8, 2, 1, id="two-nodes"),
        pytest.param(8, 4, 2, 4, 4, id="two-of-each-node"),
        pytest.param(4, 8, 1, 4, 8, id="one-of-each-node"),
        pytest.param(4, 16, 1, 4, 8, id="one-of-every-second-node"),
        pytest.param(1, 4, 1, 1, 8, id="alone"),
    ],
)
def test_where_the_ranks_of_an_axis_are(size, stride, per_node, nodes, siblings):
    group = group_of(NODES, size=float(size), stride=float(stride))
    assert (group.per_node, group.nodes, group.siblings) == (per_node, nodes, siblings)


def test_switches_narrow_only_what_crosses_them():
    tiers = (
        Tier(name="leaf", nodes=4, oversubscription=2.0),
        Tier(name="spine", nodes=8, oversubscription=3.0),
    )
    crossed = [
        float(group_of(NODES, size=size, stride=stride, tiers=tiers).oversubscription)
        for size, stride in ((32.0, 1.0), (4.0, 8.0), (64.0, 1.0), (2.0, 32.0), (128.0, 1.0))
    ]
    assert crossed == [1.0, 1.0, 2.0, 2.0, 6.0]


@given(
    sizes=st.lists(st.sampled_from([1, 2, 4, 8, 16, 32]), min_size=1, max_size=6),
    stride=st.sampled_from([1, 2, 8, 16]),
)
def test_many_groups_at_once_are_the_same_as_one_by_one(sizes, stride):
    together = group_of(NODES, size=np.array(sizes, dtype=float), stride=float(stride))
    for place, size in enumerate(sizes):
        alone = group_of(NODES, size=float(size), stride=float(stride))
        assert np.broadcast_to(together.per_node, len(sizes))[place] == alone.per_node
        assert np.broadcast_to(together.siblings, len(sizes))[place] == alone.siblings

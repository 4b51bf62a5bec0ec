"""Times of collectives: against measurements, and in how they grow."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_training.planning.cost.collectives import algorithms, environment, fastest, seconds
from airflow_training.planning.cost.group import RankGroup, group_of
from airflow_training.planning.view import catalogue
from airflow_training.planning.view.cluster import NodeGroup, Tier
from benchmarks import fit_collectives

COLLECTIVES = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv",
)  # fmt: skip
LINKS = ("nvlink2-switch", "nvlink3", "nvlink4", "pcie4")
NICS = ("infiniband-200", "infiniband-sharp-400", "efa-100", "ethernet-10")


def group(
    size: Any, *, stride: float = 1.0, link="nvlink3", nic="infiniband-200", **nodes
) -> RankGroup:
    kind = NodeGroup(
        **{
            "name": "nodes",
            "count": 64,
            "device": catalogue.device("A100"),
            "devices_per_node": 8,
            "intra_node": catalogue.link(link),
            "nic": catalogue.link(nic),
            "nics_per_node": 8,
            **nodes,
        }
    )
    return group_of(kind, size=size, stride=stride)


def time(collective, payload, of) -> float:
    return float(seconds(collective, payload, of))


# --- against measurements -------------------------------------------------------------------------


def test_half_of_the_measurements_are_met_within_a_tenth():
    errors = np.abs(fit_collectives.errors(fit_collectives.rows(), None))
    assert len(errors) == 162
    assert np.median(errors) <= 0.10


@pytest.mark.parametrize("hardware", fit_collectives.DEVICES)
def test_constants_fitted_without_a_device_still_describe_it(hardware):
    """A guard against constants that only remember rows; half of them within a quarter."""
    rows = fit_collectives.rows()
    seen = [row for row in rows if row.hardware not in (hardware, "inferred")]
    unseen = [row for row in rows if row.hardware == hardware]
    constants = fit_collectives.with_priors(fit_collectives.fit(seen))
    assert np.median(np.abs(fit_collectives.errors(unseen, constants))) <= 0.25


def test_the_faster_of_ring_and_switch_is_chosen():
    node = group(8.0, link="nvlink4")
    measured = {"ring": 367.2e9, "in-network": 480.0e9}  # bus bandwidths of an H200 node
    for name, taken in algorithms("all_reduce", 2.0**34, node).items():
        assert 2.0**34 * 1.75 / float(taken) == pytest.approx(measured[name], rel=0.1)
    assert fastest("all_reduce", 2.0**34, node) == "in-network"
    assert fastest("all_reduce", 2.0**34, group(8.0, link="nvlink3")) == "ring"


def test_the_switch_takes_over_where_it_was_seen_to():
    right, known = fit_collectives.choices(fit_collectives.rows())
    assert right == known == 22


@pytest.mark.parametrize(("ranks", "gigabytes_per_second"), [(2, 22.6), (4, 85.4), (8, 134.5)])
def test_devices_wired_pair_by_pair_reach_what_their_wires_do(ranks, gigabytes_per_second):
    """V100 in a DGX-1: measured bus bandwidth of 1 GiB."""
    payload = 2.0**30
    taken = time("all_reduce", payload, group(float(ranks), link="nvlink2"))
    reached = payload * 2 * (ranks - 1) / ranks / taken / 1e9
    assert reached == pytest.approx(gigabytes_per_second, rel=0.12)


# --- how they grow --------------------------------------------------------------------------------

groups = st.builds(
    group,
    st.sampled_from([2.0, 3.0, 4.0, 8.0, 16.0, 64.0]),
    stride=st.sampled_from([1.0, 2.0, 4.0, 8.0, 16.0]),
    link=st.sampled_from(LINKS),
    nic=st.sampled_from(NICS),
    nics_per_node=st.sampled_from([1, 4, 8]),
)
payloads = st.floats(1.0, 1e11)


@given(st.sampled_from(COLLECTIVES), groups, payloads, st.floats(1.0, 100.0))
def test_more_bytes_never_take_less(collective, of, payload, factor):
    assert time(collective, payload * factor, of) >= time(collective, payload, of) > 0


@given(
    st.sampled_from([each for each in COLLECTIVES if each != "send_recv"]),
    st.sampled_from([1.0, 8.0]),
    payloads,
)
def test_more_ranks_never_take_less_where_no_switch_reduces(collective, stride, payload):
    times = [
        time(collective, payload, group(size, stride=stride))
        for size in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
    ]
    assert times == sorted(times)


@given(
    st.sampled_from(COLLECTIVES),
    groups,
    payloads,
    st.sampled_from(["bandwidth", "efficiency", "latency_seconds"]),
    st.sampled_from(["intra_node", "nic"]),
)
def test_a_better_link_is_never_slower(collective, of, payload, what, which):
    link = getattr(of, which)
    better = getattr(link, what) * (0.5 if what == "latency_seconds" else 1.3)
    faster = dataclasses.replace(of, **{which: dataclasses.replace(link, **{what: better})})
    assert time(collective, payload, faster) <= time(collective, payload, of) * (1 + 1e-12)


@given(st.sampled_from(COLLECTIVES), groups, payloads)
def test_sharing_and_narrow_switches_are_never_faster(collective, of, payload):
    alone = dataclasses.replace(of, siblings=1.0)
    narrowed = dataclasses.replace(of, oversubscription=4.0)
    assert time(collective, payload, alone) <= time(collective, payload, of)
    assert time(collective, payload, narrowed) >= time(collective, payload, of)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_groups_that_share_nics_wait_for_each_other(collective):
    """Eight groups of one rank per node have an eighth of the NICs each."""
    of = group(4.0, stride=8.0, nics_per_node=1)
    alone = dataclasses.replace(of, siblings=1.0)
    assert time(collective, 1e9, of) == pytest.approx(8 * time(collective, 1e9, alone), rel=0.1)


@given(groups, payloads)
def test_reducing_is_gathering_after_scattering(of, payload):
    """A ring all-reduce is a reduce-scatter and an all-gather that share their start."""
    parts = time("all_gather", payload, of) + time("reduce_scatter", payload, of)
    assert float(algorithms("all_reduce", payload, of)["ring"]) <= parts


@given(
    st.sampled_from(COLLECTIVES),
    st.lists(st.tuples(st.sampled_from([1.0, 2.0, 8.0, 32.0]), payloads), min_size=1, max_size=5),
    st.sampled_from([1.0, 4.0, 8.0]),
    st.sampled_from(LINKS),
)
def test_a_table_is_priced_as_its_rows_are(collective, rows, stride, link):
    sizes, sent = (np.array(column) for column in zip(*rows, strict=True))
    table = seconds(collective, sent, group(sizes, stride=stride, link=link))
    alone = [
        time(collective, payload, group(size, stride=stride, link=link)) for size, payload in rows
    ]
    assert np.allclose(table, alone, rtol=1e-12)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_a_rank_alone_waits_for_nobody(collective):
    assert time(collective, 1e9, group(1.0)) == 0.0


def test_nodes_without_a_way_out_never_finish():
    apart = dataclasses.replace(group(16.0), nic=None)
    assert time("all_reduce", 1e6, apart) == np.inf
    assert time("all_reduce", 0.0, apart) == 0.0


def test_oversubscribed_switches_slow_what_crosses_them():
    nodes = NodeGroup(
        name="nodes",
        count=8,
        device=catalogue.device("A100"),
        devices_per_node=8,
        intra_node=catalogue.link("nvlink3"),
        nic=catalogue.link("infiniband-200"),
        nics_per_node=8,
    )
    leaf = (Tier(name="leaf", nodes=4, oversubscription=4.0),)

    def slower(size: float) -> float:
        crossing = time("all_reduce", 1e9, group_of(nodes, size=size, tiers=leaf))
        return crossing / time("all_reduce", 1e9, group_of(nodes, size=size))

    assert slower(32.0) == 1.0
    assert slower(64.0) > 3.0


def test_only_what_cannot_hurt_is_asked_of_nccl():
    sharp = group(64.0, link="nvlink3", nic="infiniband-sharp-200")
    assert environment("all_reduce", 1e9, sharp) == {"NCCL_COLLNET_ENABLE": "1"}
    assert environment("all_gather", 1e9, sharp) == {}
    assert environment("all_reduce", 1e9, group(8.0, link="nvlink4")) == {}
    assert environment("all_reduce", 1e9, group(64.0)) == {}

"""The published JSON Schema of clusters says what the parser says."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_training import planning
from airflow_training.errors import InputError
from airflow_training.planning.sources.cluster_document import ClusterDocument, cluster_schema
from airflow_training.planning.sources.clusters import parse_cluster, write_cluster
from airflow_training.planning.sources.reading import read

SHIPPED = Path(planning.__file__).parent / "data" / "cluster.schema.json"
FULL: dict[str, Any] = {
    "name": "ours",
    "nodes": [
        {
            "name": "new",
            "count": 4,
            "device": "H100-SXM5-80GB",
            "devices_per_node": 8,
            "intra_node": "nvlink4",
            "nics_per_node": 8,
            "nic": "infiniband-sharp",
            "nic_gbit_s": 400,
            "host_cpus": 96,
            "host_memory_bytes": 2e12,
            "price_per_device_hour": 2.5,
            "spot_price_per_device_hour": 1.0,
            "spot_restarts_per_device_hour": 0.01,
            "efficiency": 0.9,
        },
        {
            "name": "own",
            "count": 2,
            "device": {
                "name": "X1",
                "memory_bytes": 4e10,
                "memory_bandwidth": 1e12,
                "peak_flops": {"bf16": 1e14, "fp32": 2e13},
                "matmul_efficiency": 0.7,
                "units": 64,
            },
            "devices_per_node": 4,
            "intra_node": {
                "name": "bus",
                "bandwidth": 5e10,
                "latency_seconds": 3e-6,
                "wired": [[2, 0.25], [4, 1.0]],
            },
            "nic_gbit_s": 25,
        },
    ],
    "tiers": [{"name": "leaf", "nodes": 2, "oversubscription": 1.5}],
    "links": [{"between": ["new", "own"], "link": "ethernet-5"}],
    "quota": 24,
}
PLACES = [
    (*place, key)
    for place in (
        (),
        ("nodes", 0),
        ("nodes", 1),
        ("nodes", 1, "device"),
        ("nodes", 1, "device", "peak_flops"),
        ("nodes", 1, "intra_node"),
        ("tiers", 0),
        ("links", 0),
    )
    for key in (
        "name", "nodes", "count", "device", "devices_per_node", "intra_node", "nic", "nic_gbit_s",
        "nics_per_node", "efficiency", "price_per_device_hour", "bf16", "fp64", "bandwidth",
        "latency_seconds", "wired", "between", "link", "oversubscription", "tiers", "unheard",
    )
]  # fmt: skip


def at(document, place):
    for part in place:
        document = document[part]
    return document


def test_the_shipped_schema_is_the_one_of_the_models():
    """Where this fails: `airflow-training plan schema` prints the new one."""
    assert json.loads(SHIPPED.read_text()) == cluster_schema()


def test_the_schema_is_one_and_describes_its_keys():
    jsonschema.Draft202012Validator.check_schema(cluster_schema())
    nodes = cluster_schema()["$defs"]["NodesDocument"]["properties"]
    assert "Gbit/s" in nodes["nic_gbit_s"]["description"]


@given(
    place=st.sampled_from(PLACES),
    value=st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-2, 3),
        # JSON does not tell 8.0 from 8, the parser does
        st.floats(-2, 2).filter(lambda number: not number.is_integer()),
        st.sampled_from(["x", "", "A100"]),
        st.just([]),
        st.just({}),
        st.just([[2, 0.5]]),
        st.just(["new", "own"]),
    ),
)
@example(place=("nodes", 0, "devices_per_node"), value="8")
@example(place=("nodes", 1, "intra_node", "wired"), value=[[2, 1.5]])
def test_what_the_schema_accepts_the_parser_accepts(place, value):
    document = copy.deepcopy(FULL)
    at(document, place[:-1])[place[-1]] = value
    accepted = jsonschema.Draft202012Validator(cluster_schema()).is_valid(document)
    try:
        read(ClusterDocument, document)
    except InputError:
        assert not accepted
    else:
        assert accepted


def test_a_view_is_written_as_it_was_read():
    view = parse_cluster(FULL)
    written = write_cluster(view)
    jsonschema.validate(written, cluster_schema())
    assert parse_cluster(json.loads(json.dumps(written))) == view
    assert written["nodes"][0]["device"] == "H100-SXM5-80GB"
    assert written["nodes"][0]["nic"] == "infiniband-sharp-400"


@pytest.mark.parametrize("missing", ["count", "device", "devices_per_node"])
def test_what_the_schema_requires_the_parser_requires(missing):
    document = copy.deepcopy(FULL)
    del document["nodes"][0][missing]
    assert not jsonschema.Draft202012Validator(cluster_schema()).is_valid(document)
    with pytest.raises(InputError, match=missing):
        parse_cluster(document)

"""Models, clusters, strategies and rows as documents: what is read, what is refused and how."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_training import planning
from airflow_training.errors import InputError
from airflow_training.planning.sources.documents import (
    parse_cluster,
    parse_model,
    parse_row,
    parse_strategy,
)

CALIBRATION = Path(planning.__file__).parent / "data" / "calibration.json"
MODEL = {"hidden": 1024, "layers": 12, "heads": 16, "seq": 1024, "vocab": 50257}
NODES = {"count": 2, "device": "A100-SXM4-80GB", "devices_per_node": 8, "nic_gbit_s": 200}


def problems(parse, document, **arguments):
    with pytest.raises(InputError) as error:
        parse(document, **arguments)
    return {problem.field: problem for problem in error.value.problems}


def calibration_rows():
    data = json.loads(CALIBRATION.read_text())
    return [row for key in ("rows", "memory_rows", "heterogeneous_rows") for row in data[key]]


def test_every_calibration_row_is_read():
    for row in calibration_rows():
        read = parse_row(row)
        assert read.id == row["id"]
        assert read.strategy.devices <= read.cluster.devices
        assert read.cluster.groups[0].intra_node.name == row["cluster"]["nodes"][0]["intra_node"]
        assert read.model.layers == row["model"]["layers"]


def test_defaults_are_those_of_the_data():
    model = parse_model(MODEL)
    assert (model.kv_heads, model.ffn, model.attention) == (None, None, "flash")
    assert parse_strategy({"global_batch": 8}).devices == 1


def test_unknown_keys_are_refused_or_ignored_at_any_depth():
    row = calibration_rows()[0]
    row["model"]["colour"] = "red"
    row["cluster"]["nodes"][0]["rack"] = 3
    assert parse_row(row) == parse_row(calibration_rows()[0])
    found = problems(parse_row, row, unknown="refuse")
    assert set(found) == {"measured", "source"}
    found = problems(parse_model, {**MODEL, "layer": 3})
    assert found["model.layer"].hint == "did you mean 'layers'?"
    found = problems(parse_cluster, {"nodes": [{**NODES, "nic_gbits": 3}]})
    assert found["cluster.nodes[0].nic_gbits"].hint == "did you mean 'nic_gbit_s'?"


def test_every_mistake_of_a_row_is_named_at_once():
    row = {
        "id": "bad",
        "model": {**MODEL, "hidden": 0, "heads": "16"},
        "cluster": {"nodes": [{**NODES, "device": "A10O-SXM4-80GB"}]},
        "strategy": {"global_batch": 8, "overlap": "fsdp_prefetch"},
    }
    found = problems(parse_row, row)
    assert set(found) == {
        "model.hidden",
        "model.heads",
        "cluster.nodes[0].device",
        "strategy.overlap",
    }
    assert found["model.heads"].hint == "write it without quotes"
    assert found["strategy.overlap"].hint == "did you mean 'fsdp-prefetch'?"


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"kv_heads": 5}, "model.kv_heads", id="uneven-groups-of-heads"),
        pytest.param({"experts": 8}, "model.experts_per_token", id="experts-nobody-asks"),
        pytest.param(
            {"experts": 8, "experts_per_token": 9}, "model.experts_per_token", id="too-many"
        ),
    ],
)
def test_sizes_of_a_model_fit_each_other(change, field):
    assert set(problems(parse_model, {**MODEL, **change})) == {field}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        pytest.param({"dp": 4, "ep": 3}, "strategy.ep", id="experts-over-data-parallel"),
        pytest.param({"pp": 4, "stage_layers": [6, 6]}, "strategy.stage_layers", id="stages"),
        pytest.param({"pp": 2, "stage_devices": ["a"]}, "strategy.stage_devices", id="devices"),
        pytest.param({"pp": 2, "stage_layers": [6, 0]}, "strategy.stage_layers[1]", id="empty"),
        pytest.param({"zero": 4}, "strategy.zero", id="zero-4"),
        pytest.param({"tp": 2.5}, "strategy.tp", id="half-a-device"),
    ],
)
def test_parts_of_a_strategy_fit_each_other(change, field):
    assert set(problems(parse_strategy, {"global_batch": 8, **change})) == {field}


def test_stages_of_uneven_size_are_kept():
    strategy = parse_strategy({"global_batch": 8, "pp": 2, "stage_layers": [7, 5]})
    assert strategy.stage_layers == (7, 5)


@pytest.mark.parametrize("document", [None, 3, "A100", []])
def test_what_is_no_mapping_is_refused(document):
    assert "must be a mapping" in problems(parse_cluster, document)["cluster"].message


def test_a_cluster_of_two_kinds_has_named_groups_in_order():
    view = parse_cluster(
        {"nodes": [{**NODES, "device": "T4-16GB", "nic_gbit_s": 50}, {**NODES, "name": "fast"}]}
    )
    assert [group.name for group in view.groups] == ["T4-16GB", "fast"]
    assert view.devices == 32
    assert view.groups[0].intra_node.name == "pcie3"
    joined = view.link_between("fast", "T4-16GB")
    assert joined is not None
    assert joined.name == "ethernet-50"


@pytest.mark.parametrize("none", [{"nic_gbit_s": 0}, {"nics_per_node": 0}, {"nic_gbit_s": None}])
def test_a_single_node_needs_no_nic(none):
    (group,) = parse_cluster({"nodes": [{**NODES, "count": 1, **none}]}).groups
    assert group.nic is None


def test_a_row_may_be_numbered():
    row = calibration_rows()[0]
    assert parse_row({**row, "id": 7}).id == 7
    assert set(problems(parse_row, {**row, "id": None})) == {"id"}


def test_groups_of_one_kind_are_numbered():
    view = parse_cluster({"nodes": [NODES, {**NODES, "device": "A100"}]})
    assert [group.name for group in view.groups] == ["A100-SXM4-80GB-1", "A100-SXM4-80GB-2"]


def test_a_link_between_clusters_replaces_their_nics():
    wan = {"name": "wan", "bandwidth": 1e9, "latency_seconds": 0.01}
    nodes = [{**NODES, "name": "oslo"}, {**NODES, "name": "bergen"}]
    view = parse_cluster({"nodes": nodes, "links": [{"between": ["oslo", "bergen"], "link": wan}]})
    for pair in (("oslo", "bergen"), ("bergen", "oslo")):
        link = view.link_between(*pair)
        assert link is not None
        assert link.latency_seconds == 0.01


def test_a_kind_of_nic_takes_its_rate_from_beside_it():
    view = parse_cluster({"nodes": [{**NODES, "nic": "efa", "nic_gbit_s": 400}]})
    nic = view.groups[0].nic
    assert nic is not None
    assert (nic.name, nic.bandwidth) == ("efa-400", 50e9)


def test_an_own_device_needs_its_link():
    own = {
        "name": "X1",
        "memory_bytes": 1e10,
        "memory_bandwidth": 1e12,
        "peak_flops": {"bf16": 1e14},
    }
    found = problems(parse_cluster, {"nodes": [{**NODES, "device": own}]})
    assert set(found) == {"cluster.nodes[0].intra_node"}
    view = parse_cluster({"nodes": [{**NODES, "device": own, "intra_node": "pcie5"}]})
    assert view.groups[0].device.peak_flops == {"bf16": 1e14}
    del own["memory_bytes"]
    found = problems(parse_cluster, {"nodes": [{**NODES, "device": own}]})
    assert set(found) == {"cluster.nodes[0].device.memory_bytes"}


@pytest.mark.parametrize(
    ("document", "field"),
    [
        pytest.param({"nodes": []}, "cluster.nodes", id="no-nodes"),
        pytest.param(
            {"nodes": [{**NODES, "nic_gbit_s": None}]}, "cluster.nodes[0].nic_gbit_s", id="no-nic"
        ),
        pytest.param(
            {"nodes": [{**NODES, "count": 1, "nics_per_node": 0}, NODES]},
            "cluster.links",
            id="nothing-joins-them",
        ),
        pytest.param(
            {"nodes": [{**NODES, "name": "a"}, {**NODES, "name": "a"}]},
            "cluster.nodes[1].name",
            id="name-twice",
        ),
        pytest.param(
            {"nodes": [NODES], "links": [{"between": ["A100-SXM4-80GB", "b"], "link": "efa-100"}]},
            "cluster.links[0].between[1]",
            id="link-to-nowhere",
        ),
        pytest.param(
            {
                "nodes": [NODES],
                "tiers": [{"name": "leaf", "nodes": 8}, {"name": "top", "nodes": 8}],
            },
            "cluster.tiers[1].nodes",
            id="tiers-that-do-not-grow",
        ),
        pytest.param(
            {"nodes": [NODES], "tiers": [{"name": "leaf", "nodes": 8, "oversubscription": 0.5}]},
            "cluster.tiers[0].oversubscription",
            id="switch-that-makes-bandwidth",
        ),
    ],
)
def test_clusters_that_cannot_be(document, field):
    assert set(problems(parse_cluster, document)) == {field}

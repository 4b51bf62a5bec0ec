"""Names of devices and links, as data sheets, nvidia-smi and Kubernetes labels spell them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from airflow_training import planning
from airflow_training.errors import InputError
from airflow_training.planning.view import catalogue

DATA = Path(planning.__file__).parent / "data"


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100-SXM4-80GB", "A100-SXM4-80GB"),
        ("a100", "A100-SXM4-80GB"),
        ("NVIDIA A100-SXM4-40GB", "A100-SXM4-40GB"),
        ("NVIDIA-H100-80GB-HBM3", "H100-SXM5-80GB"),
        ("Tesla-V100-SXM2-16GB", "V100-SXM2-16GB"),
        ("Tesla T4", "T4-16GB"),
        ("tpu-v5p-slice", "TPU-v5p"),
        ("AMD Instinct MI300X", "MI300X-192GB"),
        ("Ascend 910B", "Ascend-910B"),
    ],
)
def test_a_device_goes_by_many_names(written, name):
    assert catalogue.device(written).name == name


def test_a_rate_in_the_name_of_a_fabric_is_that_of_one_nic():
    nic = catalogue.link("infiniband-200")
    assert nic.bandwidth == 25e9
    assert catalogue.link("ib-200") == nic
    assert catalogue.link("EFA-100").bandwidth == 12.5e9


@pytest.mark.parametrize(("gbit", "name"), [(200, "infiniband-200"), (10, "ethernet-10")])
def test_a_nic_of_known_rate_only_is_taken_for_what_is_usual(gbit, name):
    assert catalogue.network(gbit).name == name


def test_an_unknown_device_says_which_there_are():
    with pytest.raises(InputError) as error:
        catalogue.device("A1O0-SXM4-80GB", field="cluster.nodes[0].device")
    (problem,) = error.value.problems
    assert problem.field == "cluster.nodes[0].device"
    assert problem.hint == "did you mean 'A100-SXM4-80GB'?"
    assert "T4-16GB" in problem.allowed


@pytest.mark.parametrize("written", ["nvlnk3", "infiniband", "infiniband-0", "token-ring-16"])
def test_an_unknown_link_says_which_there_are(written):
    with pytest.raises(InputError, match="no link is called"):
        catalogue.link(written)


def test_every_entry_has_a_source_and_is_physical():
    for name in catalogue.device_names():
        device = catalogue.device(name)
        assert device.source, name
        assert 0.3 < device.matmul_efficiency <= 1, name
        assert 1e9 <= device.memory_bytes < 400e9, name
        assert device.memory_bandwidth < max(device.peak_flops.values()), name
        usual = catalogue.usual_link(name)
        assert usual is not None
        assert usual.bandwidth < device.memory_bandwidth, name
    for name in catalogue.link_names():
        link = catalogue.link(name.replace("GBIT", "100"))
        assert link.source, name
        assert 0 < link.efficiency <= 1, name
        assert 0 < link.latency_seconds < 1e-3, name


def test_no_name_stands_for_two_devices():
    """A later alias would silently take the place of an earlier one."""
    for file, keys in (("devices.json", ("devices",)), ("links.json", ("links", "fabrics"))):
        data = json.loads((DATA / file).read_text())
        entries = [entry for key in keys for entry in data[key]]
        plain = [
            {re.sub("[^a-z0-9]", "", name.lower()) for name in (entry["name"], *entry["aliases"])}
            for entry in entries
        ]
        assert sum(map(len, plain)) == len(set().union(*plain)), file


def test_every_device_measured_for_calibration_is_in_the_catalogue():
    calibration = json.loads((DATA / "calibration.json").read_text())
    for row in calibration["matmul_achievable_bf16"]["rows"]:
        device = catalogue.device(row["gpu"])
        assert device.matmul_efficiency == row["eff"], row["gpu"]
        assert device.peak_flops["bf16"] == pytest.approx(row["peak_tflops"] * 1e12, rel=0.01)

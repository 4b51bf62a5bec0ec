"""Clusters seen in a file, in Kubernetes nodes, in a job's request, and in a measurement."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_training.admission.plan.request import cluster_of_request
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.errors import InputError
from airflow_training.planning.cost.collectives import seconds
from airflow_training.planning.cost.group import group_of
from airflow_training.planning.sources.clusters import parse_cluster, write_cluster
from airflow_training.planning.sources.files import read_cluster, read_file
from airflow_training.planning.sources.kubernetes_nodes import cluster_of_nodes
from airflow_training.planning.sources.measured import cluster_of_measurement, links_of_metrics
from tests.ports import free_port

MEASURE = Path(__file__).parents[2] / "dags" / "examples" / "measure_cluster"


# --- a file ---------------------------------------------------------------------------------------


def test_a_file_is_read_with_the_lines_of_its_mistakes(tmp_path):
    path = tmp_path / "cluster.yaml"
    path.write_text(
        "nodes:\n  - count: 2\n    device: A10O-SXM4-80GB\n    devices_per_node: 8\n    nic_gbit_s: 1\n"
    )
    with pytest.raises(InputError) as error:
        read_file(path, parse_cluster)
    (problem,) = error.value.problems
    assert (problem.field, problem.line) == ("nodes[0].device", 3)
    path.write_text(path.read_text().replace("A10O", "A100"))
    assert read_file(path, parse_cluster) == read_cluster(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(None, "cannot be read", id="no-file"),
        pytest.param("", "one document", id="empty"),
        pytest.param("a: 1\n---\na: 2\n", "one document", id="two"),
        pytest.param("nodes: [", "line 1", id="no-yaml"),
        pytest.param("- 1\n", "must be a mapping", id="a-list"),
    ],
)
def test_a_file_that_is_no_cluster_gets_one_message(tmp_path, text, said):
    path = tmp_path / "cluster.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InputError, match=said) as error:
        read_file(path, parse_cluster)
    assert str(path) in str(error.value)


# --- Kubernetes nodes -----------------------------------------------------------------------------


def node(name, *, labels=None, unschedulable=False, ready="True", **allocatable):
    amounts = {"cpu": "96", "memory": "1000Gi"}
    amounts |= {key.replace("__", "/").replace("_", "."): each for key, each in allocatable.items()}
    return {
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {"unschedulable": True} if unschedulable else {},
        "status": {"allocatable": amounts, "conditions": [{"type": "Ready", "status": ready}]},
    }


def gpu_node(name, product="NVIDIA-A100-SXM4-80GB", count=8, instance="", **other):
    labels = {"nvidia.com/gpu.product": product, "nvidia.com/gpu.count": str(count)}
    if instance:
        labels["node.kubernetes.io/instance-type"] = instance
    return node(name, labels=labels, nvidia_com__gpu=str(count), **other)


def test_equal_nodes_of_one_kind_are_one_group():
    found = cluster_of_nodes(
        [gpu_node(f"gpu-{each}", instance="p4de.24xlarge") for each in range(3)] + [node("control")]
    )
    (group,) = found.view.groups
    assert (group.name, group.count, group.devices_per_node) == ("A100-SXM4-80GB", 3, 8)
    assert group.nic is not None
    assert (group.nic.name, group.nics_per_node) == ("efa-100", 4)
    assert (group.intra_node.name, group.host_cpus) == ("nvlink3", 96)
    assert found.warnings == ()
    assert parse_cluster(write_cluster(found.view)) == found.view


def test_nodes_that_take_no_work_are_left_out():
    found = cluster_of_nodes(
        [gpu_node("a"), gpu_node("b", unschedulable=True), gpu_node("c", ready="Unknown")]
    )
    assert found.view.devices == 8
    assert "2 nodes cordoned or not ready" in found.warnings[0]


@pytest.mark.parametrize(
    ("given", "device", "devices"),
    [
        pytest.param(gpu_node("a", "Tesla-T4", 1), "T4-16GB", 1, id="nvidia"),
        pytest.param(
            node("a", labels={"cloud.google.com/gke-accelerator": "nvidia-tesla-a100"},
                 nvidia_com__gpu="8"),
            "A100-SXM4-40GB", 8, id="google-gpu",
        ),
        pytest.param(
            node("a", labels={"cloud.google.com/gke-tpu-accelerator": "tpu-v5p-slice"},
                 google_com__tpu="4"),
            "TPU-v5p", 4, id="google-tpu",
        ),
        pytest.param(
            node("a", labels={"amd.com/gpu.product-name": "AMD_Instinct_MI300X_OAM"},
                 amd_com__gpu="8"),
            "MI300X-192GB", 8, id="amd",
        ),
        pytest.param(
            node("a", labels={"accelerator": "huawei-Ascend910",
                              "node.kubernetes.io/npu.chip.name": "910B3"},
                 huawei_com__Ascend910="8"),
            "Ascend-910B", 8, id="huawei",
        ),
        pytest.param(
            node("a", labels={"node.kubernetes.io/instance-type": "g4dn.12xlarge"},
                 nvidia_com__gpu="4"),
            "T4-16GB", 4, id="instance-type-alone",
        ),
        pytest.param(
            {**gpu_node("a", "NVIDIA-L4-SHARED", 1), "status": {"allocatable": {"nvidia.com/gpu": "4"}}},
            "L4-24GB", 1, id="time-sliced",
        ),
    ],
)  # fmt: skip
def test_labels_say_what_a_node_carries(given, device, devices):
    (group,) = cluster_of_nodes([given]).view.groups
    assert (group.device.name, group.devices_per_node) == (device, devices)


def test_kinds_stay_apart_and_an_unknown_network_is_said():
    found = cluster_of_nodes([gpu_node("a"), gpu_node("b", "Tesla-T4", 4)])
    assert [group.name for group in found.view.groups] == ["A100-SXM4-80GB", "T4-16GB"]
    assert "ethernet-10 between nodes" in found.warnings[0]


def test_a_node_of_an_unknown_device_is_left_out_with_its_name():
    found = cluster_of_nodes([gpu_node("good"), gpu_node("odd", "NVIDIA-Z9000")])
    assert found.view.devices == 8
    assert "odd" in found.warnings[0]
    assert "NVIDIA-Z9000" in found.warnings[0]


@pytest.mark.parametrize(
    "nodes",
    [
        pytest.param([], id="none"),
        pytest.param([gpu_node("a", unschedulable=True)], id="cordoned"),
        pytest.param([gpu_node("a", "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb")], id="slices"),
        pytest.param([node("a", nvidia_com__gpu="8")], id="no-labels"),
    ],
)
def test_a_cluster_with_nothing_to_plan_for_is_refused(nodes):
    with pytest.raises(InputError, match="no node of the cluster can be planned for"):
        cluster_of_nodes(nodes)


def test_nodes_without_accelerators_are_cpus():
    (group,) = cluster_of_nodes([node("a"), node("b")]).view.groups
    assert (group.name, group.count, group.devices_per_node) == ("CPU-96", 2, 1)
    assert group.device.memory_bytes == 1000 * 2**30


# --- a job's request ------------------------------------------------------------------------------


def role(name, replicas, resources=None, *, selector=None, **other):
    container = {"name": "main", "resources": resources or {}}
    pod = {"containers": [container], **({"nodeSelector": selector} if selector else {})}
    return ResolvedRole(name=name, replicas=replicas, template={"spec": pod}, **other)


def test_on_one_machine_all_ranks_share_a_node():
    cpus = {"requests": {"cpu": "2", "memory": "1Gi"}}
    job = ResolvedJob(name="digits", roles=(role("master", 1, cpus), role("worker", 2, cpus)))
    (group,) = cluster_of_request(job, on_one_machine=True).groups
    assert (group.name, group.count, group.devices_per_node) == ("master", 1, 3)
    assert (group.device.name, group.device.memory_bytes) == ("CPU-2", 2**30)
    assert group.intra_node.name == "shared-memory"


def test_on_a_cluster_an_instance_is_a_node():
    gpus = {"limits": {"nvidia.com/gpu": 8, "cpu": 64}}
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    job = ResolvedJob(
        name="large",
        runtime="kubernetes",
        roles=(
            role("worker", 2, gpus, selector=selector, max_replicas=4),
            role("tensorboard", 1, rank_offset=None),
        ),
    )
    (group,) = cluster_of_request(job, on_one_machine=False).groups
    assert (group.count, group.devices_per_node, group.device.name) == (4, 8, "H100-SXM5-80GB")
    assert group.host_cpus == 64


def test_accelerators_of_a_kind_nobody_says_cannot_be_planned_for():
    job = ResolvedJob(
        name="large",
        runtime="kubernetes",
        roles=(role("worker", 2, {"limits": {"nvidia.com/gpu": "8"}}),),
    )
    with pytest.raises(InputError, match="which kind is not said"):
        cluster_of_request(job, on_one_machine=False)
    with pytest.raises(InputError, match="no role asks"):
        cluster_of_request(
            ResolvedJob(name="empty", roles=(role("worker", 0),)), on_one_machine=False
        )


# --- a measurement --------------------------------------------------------------------------------


def measured_rank(host, *, device="NVIDIA A100-SXM4-80GB", bf16=250e12):
    return {
        "host": host,
        "device": device,
        "memory_bytes": 8e10,
        "units": 108,
        "matmul_flops": {"bf16": bf16, "fp32": 15e12},
        "memory_bandwidth": 1.7e12,
        "host_cpus": 96,
        "host_memory_bytes": 1e12,
    }


INSIDE = {"kind": "intra_node", "pairs": 1, "latency_seconds": 25e-6, "bandwidth": 240e9}
BETWEEN = {"kind": "inter_node", "pairs": 8, "latency_seconds": 40e-6, "bandwidth": 20e9}


def test_a_known_device_takes_the_share_of_its_peak_that_was_measured():
    ranks = [measured_rank(host) for host in "ab" for _ in range(8)]
    view = cluster_of_measurement({"ranks": ranks, "links": [INSIDE, BETWEEN]})
    (group,) = view.groups
    assert (group.count, group.devices_per_node) == (2, 8)
    assert group.device.peak_flops["bf16"] == 312e12
    assert group.device.matmul_efficiency == pytest.approx(250 / 312)
    assert group.intra_node.efficiency == pytest.approx(0.8)
    assert group.nic is not None
    assert group.nic.bandwidth == 160e9
    assert 1e-6 <= group.nic.latency_seconds < 40e-6
    assert parse_cluster(write_cluster(view)) == view


def test_what_zero_exchanges_has_its_own_rate():
    slow = {**INSIDE, "allreduce_bandwidth": 100e9, "allgather_bandwidth": 80e9}
    ranks = [measured_rank("a", device="CPU-1"), measured_rank("a", device="CPU-1")]
    half = {"reduce_scatter_bandwidth": 40e9}
    view = cluster_of_measurement({"ranks": ranks, "links": [{**slow, **half}]})
    link = view.groups[0].intra_node
    assert (link.gather_efficiency, link.scatter_efficiency) == (0.8, 0.4)
    pair = group_of(view.groups[0], size=2.0)
    summed, gathered, scattered = (
        seconds(each, 1e12, pair) for each in ("all_reduce", "all_gather", "reduce_scatter")
    )
    assert gathered == pytest.approx(summed / 2 / 0.8, rel=1e-3)
    assert scattered == pytest.approx(summed / 2 / 0.4, rel=1e-3)
    known = cluster_of_measurement({"ranks": ranks, "links": [slow]}).groups[0].intra_node
    assert (known.gather_efficiency, known.scatter_efficiency) == (0.8, 1.0)


def test_a_slow_node_becomes_a_group_of_its_own():
    ranks = [measured_rank(host) for host in "abc" for _ in range(2)]
    ranks[-1]["matmul_flops"]["bf16"] = 125e12
    view = cluster_of_measurement({"ranks": ranks, "links": [BETWEEN]})
    assert [(group.count, group.efficiency) for group in view.groups] == [(2, 1.0), (1, 0.5)]
    for group in view.groups:
        assert group.device.matmul_efficiency == pytest.approx(250 / 312)


def test_an_unknown_device_is_what_was_measured():
    view = cluster_of_measurement({"ranks": [measured_rank("a", device="Prototype")]})
    (group,) = view.groups
    assert group.device.peak_flops["bf16"] * group.device.matmul_efficiency == 250e12
    assert group.nic is None


def test_nodes_whose_network_was_not_measured_are_refused():
    with pytest.raises(InputError, match="nothing of the network"):
        cluster_of_measurement({"ranks": [measured_rank("a"), measured_rank("b")]})


@pytest.mark.e2e
@pytest.mark.parametrize(
    "hosts",
    [
        pytest.param(("a", "a"), id="one-node", marks=pytest.mark.soak),
        pytest.param(("a", "b"), id="two-nodes", marks=pytest.mark.soak),
    ],
)
def test_two_ranks_measure_this_machine(tmp_path, hosts):
    port = free_port()
    ranks = [
        subprocess.Popen(
            [sys.executable, MEASURE / "measure.py",
             "--seconds", "0.05", "--matrix", "128", "--megabytes", "1"],
            env={
                **os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                "RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1",
                "NODE_NAME": host, "TRAINING_OUTPUT_DIR": str(tmp_path), "CUDA_VISIBLE_DEVICES": "",
                "TRAINING_PROGRESS_FILE": str(tmp_path / "progress.jsonl"),
            },
        )
        for rank, host in enumerate(hosts)
    ]  # fmt: skip
    try:
        assert [rank.wait(timeout=100) for rank in ranks] == [0, 0]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    view = read_cluster(tmp_path / "cluster-measured.json")
    document = json.loads((tmp_path / "cluster-measured.json").read_text())
    assert [each["host"] for each in document["ranks"]] == list(hosts)
    assert view.devices == 2
    for group in view.groups:
        assert group.device.peak_flops["fp32"] > 1e8
        assert (group.nic is None) == (hosts == ("a", "a"))
    [told] = (tmp_path / "progress.jsonl").read_text().splitlines()
    links = links_of_metrics(json.loads(told)["metrics"])
    assert [link.model_dump() for link in links] == document["links"]

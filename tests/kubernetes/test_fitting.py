"""Whether any node could ever take a pod: by its nodes, and by the scheduler's words."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_training.runtimes.kubernetes.fitting import never_fits, never_fits_by_message

GPU = "nvidia.com/gpu"
TAINT = {"key": GPU, "value": "present", "effect": "NoSchedule"}


def node(name: str = "a", *, labels: Any = None, taints: Any = (), **has: Any) -> dict[str, Any]:
    amounts = {"cpu": "72", "memory": "256Gi", "pods": "110", **has}
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, **(labels or {})}},
        "spec": {"taints": [*taints]},
        "status": {"allocatable": amounts},
    }


def pod(**asked: Any) -> dict[str, Any]:
    spec: dict[str, Any] = {
        key: asked.pop(key) for key in ("nodeSelector", "tolerations", "affinity") if key in asked
    }
    requests: dict[str, Any] = {key.replace("gpu", GPU): value for key, value in asked.items()}
    return {"containers": [{"name": "main", "resources": {"requests": requests}}], **spec}


def required(*rules: dict[str, Any], key: str = "matchExpressions") -> dict[str, Any]:
    terms = {"nodeSelectorTerms": [{key: list(rules)}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


GPU_NODE = node("gpu-1", taints=[TAINT], labels={"kind": "a100"}, **{GPU: "8"})


@pytest.mark.parametrize(
    ("wanted", "nodes"),
    [
        pytest.param(pod(cpu="72"), [node()], id="all-of-a-node"),
        pytest.param(pod(), [node()], id="nothing"),
        pytest.param(pod(cpu="999"), [], id="no-node-is-known"),
        pytest.param(pod(cpu="72"), [node("a", cpu="1"), node("b")], id="the-other-one"),
        pytest.param(
            pod(gpu=8, tolerations=[{"operator": "Exists"}]), [GPU_NODE], id="tolerates-all"
        ),
        pytest.param(
            pod(gpu=1, tolerations=[{"key": GPU, "value": "present"}]),
            [GPU_NODE],
            id="tolerates-it",
        ),
        pytest.param(pod(gpu=1), [GPU_NODE], id="the-cluster-lets-in-who-asks-for-the-device"),
        pytest.param(
            pod(cpu="1"),
            [node(taints=[{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}])],
            id="cordoned-passes",
        ),
        pytest.param(
            pod(cpu="1"),
            [node(taints=[{"key": "lazy", "effect": "PreferNoSchedule"}])],
            id="preferred-is-not-required",
        ),
        pytest.param(pod(nodeSelector={"kind": "x"}), [node(labels={"kind": "x"})], id="labels"),
        pytest.param(
            pod(affinity=required({"key": "kind", "operator": "In", "values": ["x", "y"]})),
            [node(labels={"kind": "y"})],
            id="affinity",
        ),
        pytest.param(
            pod(
                affinity=required(
                    {"key": "metadata.name", "operator": "In", "values": ["a"]}, key="matchFields"
                )
            ),
            [node("a")],
            id="by-name",
        ),
        pytest.param(
            pod(affinity=required({"key": "gen", "operator": "Gt", "values": ["3"]})),
            [node(labels={"gen": "4"})],
            id="newer-than",
        ),
    ],
)
def test_what_an_empty_node_could_take_is_not_refused(wanted, nodes):
    assert never_fits(wanted, nodes) == ""


@pytest.mark.parametrize(
    ("wanted", "nodes", "told"),
    [
        pytest.param(
            pod(cpu="73"), [node("a", cpu="8"), node("b")],
            ["asks for 73 of cpu", "the largest is b with 72"], id="cpu",
        ),
        pytest.param(
            pod(memory="300Gi"), [node()], ["300 GiB of memory", "a with 256 GiB"], id="memory"
        ),
        pytest.param(
            pod(**{"nvidia.com/mig-1g.5gb": 1}), [node()],
            ["nvidia.com/mig-1g.5gb, which none has"], id="a-gpu-nobody-has",
        ),
        pytest.param(
            pod(gpu=9, tolerations=[{"operator": "Exists"}]), [node(), GPU_NODE],
            ["9 of nvidia.com/gpu", "gpu-1 with 8"], id="more-gpus",
        ),
        pytest.param(
            pod(gpu=1), [node(), node("gpu-1", taints=[{**TAINT, "key": "team"}], **{GPU: "8"})],
            ["gpu-1 could, with a toleration of taint team=present:NoSchedule"], id="toleration",
        ),
        pytest.param(
            pod(nodeSelector={"kind": "h100"}), [GPU_NODE], ["none has the labels"], id="selector"
        ),
        pytest.param(
            pod(affinity=required({"key": "kind", "operator": "NotIn", "values": ["a100"]})),
            [GPU_NODE], ["none has the labels"], id="affinity",
        ),
        pytest.param(
            pod(affinity=required({"key": "gen", "operator": "Gt", "values": ["3"]})),
            [node(labels={"gen": "old"})], ["none has the labels"], id="not-a-number",
        ),
        pytest.param(
            pod(cpu="60", memory="8Gi"), [node("a", cpu="4"), node("b", memory="1Gi")],
            ["none has 60 of cpu and 8 GiB of memory together"], id="not-together",
        ),
    ],
)  # fmt: skip
def test_what_no_node_could_take_is_told_with_the_largest(wanted, nodes, told):
    said = never_fits(wanted, nodes)
    assert all(each in said for each in ["no node could take it, even when empty", *told]), said


def test_a_queue_that_brings_tolerations_is_not_judged_by_taints():
    assert never_fits(pod(gpu=1), [GPU_NODE], any_taint=True) == ""
    assert never_fits(pod(gpu=9), [GPU_NODE], any_taint=True)


_HELPLESS = " preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
_NO_VICTIMS = (
    " preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod."
)


@pytest.mark.parametrize(
    ("words", "never"),
    [
        pytest.param(f"0/3 nodes are available: 3 Insufficient cpu.{_HELPLESS}", True, id="too-large"),
        pytest.param(f"0/3 nodes are available: 3 Insufficient cpu.{_NO_VICTIMS}", False, id="full"),
        pytest.param(
            f"0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate,{_HELPLESS}",
            True, id="with-claims-of-devices",
        ),
        pytest.param("0/3 nodes are available: 3 Insufficient nvidia.com/gpu.", False, id="not-said"),
        pytest.param(
            "0/3 nodes are available: 1 node(s) had untolerated taint {nvidia.com/gpu: present},"
            f" 2 Insufficient nvidia.com/gpu.{_HELPLESS}", True, id="a-toleration-is-missing",
        ),
        pytest.param(
            f"0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector.{_HELPLESS}",
            True, id="labels",
        ),
        pytest.param(
            "0/3 nodes are available: 1 node(s) had untolerated taint {node.kubernetes.io/not-ready: },"
            f" 2 Insufficient cpu.{_HELPLESS}", False, id="a-node-comes-back",
        ),
        pytest.param(
            f"0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.{_HELPLESS}",
            False, id="a-node-is-cordoned",
        ),
        pytest.param(
            f"0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.{_HELPLESS}",
            False, id="a-volume-may-come",
        ),
        pytest.param("no nodes available to schedule pods", False, id="no-nodes"),
        pytest.param("0/0 nodes are available: .", False, id="none"),
        pytest.param("", False, id="nothing"),
    ],
)  # fmt: skip
def test_the_schedulers_words_say_whether_waiting_helps(words, never):
    assert bool(never_fits_by_message(words)) == never


def test_only_what_the_nodes_lack_is_repeated():
    words = f"0/3 nodes are available: 3 Insufficient cpu. no new claims to deallocate,{_HELPLESS}"
    told = "no node could take it, even when empty: 3 Insufficient cpu"
    assert never_fits_by_message(words) == told
    assert never_fits_by_message(words.replace(" no new claims to deallocate,", "")) == told

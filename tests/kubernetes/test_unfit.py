"""What of a node makes it one to leave: conditions, taints and labels, the usual ones or those of a job."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from airflow_training.documents.resolved import UnfitNodePolicy
from airflow_training.runtimes.kubernetes.api_errors import Forbidden
from airflow_training.runtimes.kubernetes.node_watch import NodeFacts, NodeWatch
from airflow_training.runtimes.kubernetes.observing import observe
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.unfit import (
    CONDITIONS,
    TAINTS,
    NodeFact,
    annotation_of,
    fact_of,
    rules_for,
)
from tests.kubernetes.samples import a_job, a_pod
from tests.kubernetes.test_observing import NOW
from tests.waiting import PATIENCE, until

CORDON: dict[str, Any] = {
    "unschedulable": True,
    "taints": [{"key": "node.kubernetes.io/unschedulable"}],
}


def a_node(
    *conditions: tuple[str, str], name: str = "gpu-3", labels: Any = None, **spec: Any
) -> dict[str, Any]:
    told = [{"type": kind, "status": status} for kind, status in conditions]
    return {
        "metadata": {"name": name, "labels": labels or {}, "resourceVersion": "7"},
        "spec": spec,
        "status": {"conditions": told},
    }


def said_of(node: dict[str, Any], **policy: Any) -> str:
    rules = rules_for(annotation_of(UnfitNodePolicy(action="Move", **policy)))
    assert rules is not None
    found = fact_of(node, rules)
    return "" if found is None else f"{found.reason}: {found.message}"


@pytest.mark.parametrize(
    ("node", "policy", "told"),
    [
        pytest.param(a_node(("Ready", "True"), ("MemoryPressure", "False")), {}, "", id="well"),
        pytest.param(a_node(("Ready", "Unknown")), {}, "", id="lost-is-another-matter"),
        pytest.param(a_node(("MemoryPressure", "True")), {}, "", id="the-kubelet-evicts-itself"),
        pytest.param(a_node(("NetworkUnavailable", "True")), {}, "condition NetworkUnavailable is True", id="network"),
        pytest.param(a_node(("GpuUnhealthy", "True")), {}, "condition GpuUnhealthy is True", id="gpu"),
        pytest.param(a_node(("GpuUnhealthy", "False")), {}, "", id="gpu-well"),
        pytest.param(a_node(("XIDErrors", "True")), {}, "condition XIDErrors is True", id="xid-in-capitals"),
        pytest.param(a_node(("XidCriticalError", "True")), {}, "condition XidCriticalError is True", id="xid"),
        pytest.param(a_node(("AcceleratedHardwareReady", "False")), {}, "condition AcceleratedHardwareReady is False", id="not-ready"),
        pytest.param(a_node(("AcceleratedHardwareReady", "True")), {}, "", id="ready"),
        pytest.param(a_node(("FrequentKubeletRestart", "True")), {}, "", id="not-one-that-counts"),
        pytest.param(
            a_node(("FrequentKubeletRestart", "True")), {"conditions": ("Frequent*",)},
            "condition FrequentKubeletRestart is True", id="named-by-the-job",
        ),
        pytest.param(a_node(("GpuUnhealthy", "True")), {"conditions": ()}, "", id="none-by-the-job"),
        pytest.param(
            a_node(taints=[{"key": "ToBeDeletedByClusterAutoscaler", "value": "17"}]), {},
            "taint ToBeDeletedByClusterAutoscaler=17", id="autoscaler",
        ),
        pytest.param(
            a_node(taints=[{"key": "aws-node-termination-handler/spot-itn"}]), {},
            "taint aws-node-termination-handler/spot-itn", id="spot",
        ),
        pytest.param(a_node(taints=[{"key": "team"}]), {}, "", id="a-taint-for-others"),
        pytest.param(
            a_node(taints=[{"key": "maintenance"}]), {"taints": ("maintenance",)}, "taint maintenance", id="named-taint",
        ),
        pytest.param(a_node(**CORDON), {}, "NodeCordoned: node gpu-3 is cordoned", id="cordoned"),
        pytest.param(
            a_node(**CORDON), {"taints": ("node.kubernetes.io/unschedulable",)},
            "NodeUnfit: node gpu-3: taint node.kubernetes.io/unschedulable", id="cordoned-and-named",
        ),
        pytest.param(a_node(labels={"gpu.health": "bad-ecc"}), {}, "", id="labels-count-where-named"),
        pytest.param(
            a_node(labels={"gpu.health": "bad-ecc"}), {"labels": {"gpu.health": "bad*"}},
            "label gpu.health=bad-ecc", id="label",
        ),
        pytest.param(a_node(labels={"gpu.health": "good"}), {"labels": {"gpu.health": "bad*"}}, "", id="another-value"),
    ],
)  # fmt: skip
def test_what_makes_a_node_one_to_leave(node, policy, told):
    said = said_of(node, **policy)
    assert told in said
    assert bool(told) == bool(said)


def test_a_job_that_ignores_nodes_says_so_on_its_pods():
    assert rules_for(annotation_of(UnfitNodePolicy(action="Ignore"))) is None
    assert annotation_of(UnfitNodePolicy(action="Move")) == ""
    policy = UnfitNodePolicy(conditions=("Xid*",))
    job = a_job(scheduling={"unfit_nodes": policy})
    marks = PodView.of(a_pod(job)).annotations
    assert marks["airflow-training/unfit-nodes"] == '{"conditions": ["Xid*"]}'
    assert "airflow-training/unfit-nodes" not in a_pod()["metadata"]["annotations"]


@pytest.mark.parametrize(
    "odd",
    ["{odd", "[]", "7", '"all"', '{"conditions": 3, "taints": [1], "labels": {"a": 1}}', '{"labels": []}'],
)  # fmt: skip
def test_an_annotation_that_is_not_ours_to_read_says_nothing(odd):
    assert rules_for(odd) == rules_for("")


def running_document(**status: Any) -> dict[str, Any]:
    made = a_pod()
    made["metadata"] |= {"uid": "u-1", "resourceVersion": "5"}
    made["spec"]["nodeName"] = "gpu-3"
    state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
    made["status"] = {
        "phase": "Running",
        "containerStatuses": [{"name": "main", "state": state, "started": True}],
        **status,
    }
    return made


@pytest.mark.parametrize("name", [*CONDITIONS, *TAINTS])
def test_what_counts_is_on_the_page(name):
    page = Path(__file__).parents[2] / "docs" / "kubernetes.md"
    assert f"`{name}`" in page.read_text(encoding="utf-8")


def running(**status: Any) -> PodView:
    return PodView.of(running_document(**status))


FACT = NodeFact("NodeUnfit", "node gpu-3: condition GpuUnhealthy is True")


def test_an_instance_says_what_its_node_says():
    seen = observe(running(), now=NOW, node_fact=FACT)
    assert (seen.state, seen.reason, seen.message) == ("running", *FACT)
    waiting = {"phase": "Pending", "containerStatuses": []}
    seen = observe(running(**waiting), now=NOW, node_fact=FACT)
    assert (seen.state, seen.reason) == ("pending", "NodeUnfit")


CORDONED = NodeFact("NodeCordoned", "node gpu-3 is cordoned: it may be drained at any time")


@pytest.mark.parametrize("fact", [CORDONED, FACT])
@pytest.mark.parametrize("reason", ["ImagePullBackOff", "CreateContainerConfigError"])
def test_what_keeps_an_instance_from_its_start_is_not_hidden_by_a_cordon(reason, fact):
    waiting = [{"name": "main", "state": {"waiting": {"reason": reason, "message": "no such"}}}]
    pod = running(phase="Pending", containerStatuses=waiting)
    seen = observe(pod, now=NOW, node_fact=fact)
    assert (seen.state, seen.reason) == ("pending", reason if fact is CORDONED else "NodeUnfit")
    assert observe(running(), now=NOW, node_fact=CORDONED).reason == "NodeCordoned"


def test_how_an_instance_ended_is_told_whatever_its_node_says():
    end = {"exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}
    ended = [{"name": "main", "state": {"terminated": end}}]
    seen = observe(running(phase="Failed", containerStatuses=ended), now=NOW + 1e9, node_fact=FACT)
    assert (seen.state, seen.reason) == ("failed", "Error")


class Server:
    """Lists nodes, then says what it is told to."""

    def __init__(self, *nodes: dict[str, Any], refuses: bool = False) -> None:
        self.nodes = list(nodes)
        self.refuses = refuses
        self.asked: list[str] = []
        self.events: asyncio.Queue[tuple[str, dict[str, Any]] | Exception] = asyncio.Queue()

    async def list(self, *_: Any, **__: Any) -> tuple[list[dict[str, Any]], str]:
        self.asked.append("list")
        if self.refuses:
            raise Forbidden(403, "Forbidden", "nodes is forbidden")
        return list(self.nodes), "7"

    async def watch(self, *_: Any, **__: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        self.asked.append("watch")
        while True:
            told = await self.events.get()
            if isinstance(told, Exception):
                raise told
            yield told


async def test_one_watch_serves_all_and_only_while_somebody_has_pods():
    server = Server(a_node())
    watch = NodeWatch(server)  # type: ignore[arg-type]  # only what it asks for
    due: list[str] = []
    facts = [NodeFacts(watch, due.append) for _ in range(2)]
    with anyio.fail_after(PATIENCE):
        unplaced = running_document()
        del unplaced["spec"]["nodeName"]
        assert facts[0].of(PodView.of(unplaced)) is None
        ignored = running_document()
        ignored["metadata"]["annotations"]["airflow-training/unfit-nodes"] = "null"
        assert facts[0].of(PodView.of(ignored)) is None
        await asyncio.sleep(0)
        assert server.asked == [], "nothing needs it"
        for each in facts:
            each.of(running())
        await until(lambda: watch.nodes is not None)
        await until(lambda: server.asked == ["list", "watch"])
        assert facts[0].of(running()) is None
        due.clear()
        server.events.put_nowait(("MODIFIED", a_node(("GpuUnhealthy", "True"))))
        await until(lambda: len(due) == 2)
        assert facts[0].of(running()) == FACT
        server.events.put_nowait(("MODIFIED", a_node(("GpuUnhealthy", "True"))))
        server.events.put_nowait(("DELETED", a_node()))
        await until(lambda: len(due) == 4)
        assert facts[0].of(running()) is None
        for each in facts:
            each.close()
        assert watch.nodes is None
        assert server.asked == ["list", "watch"]


async def test_nodes_that_may_not_be_read_are_asked_for_once():
    server = Server(refuses=True)
    watch = NodeWatch(server)  # type: ignore[arg-type]  # only what it asks for
    facts = NodeFacts(watch, lambda _: None)
    with anyio.fail_after(PATIENCE):
        assert facts.of(running()) is None
        await until(lambda: server.asked == ["list"])
        for _ in range(5):
            await asyncio.sleep(0)
        assert facts.of(running()) is None
        assert watch.nodes is None
    facts.close()
    assert server.asked == ["list"]


async def test_what_nodes_said_is_forgotten_once_they_may_not_be_read_any_more():
    server = Server(a_node(("GpuUnhealthy", "True")))
    watch = NodeWatch(server)  # type: ignore[arg-type]  # only what it asks for
    due: list[str] = []
    facts = NodeFacts(watch, due.append)
    with anyio.fail_after(PATIENCE):
        facts.of(running())
        await until(lambda: facts.of(running()) == FACT)
        due.clear()
        server.events.put_nowait(Forbidden(403, "Forbidden", "nodes is forbidden"))
        await until(lambda: watch.nodes is None)
        assert due == [running().name]
        assert facts.of(running()) is None
    facts.close()

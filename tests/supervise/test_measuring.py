"""What a run with a plan measures, and what the next plan makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from airflow_training.admission.plan.history import history_of
from airflow_training.admission.plan.replan import ReplanInput, replan_run
from airflow_training.control.model import InstanceEntry, JobEntry, Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.resolved_blocks import ResolvedCheckpoint, SaveEverySeconds
from airflow_training.planning.sources.clusters import parse_cluster
from airflow_training.runtimes.port import ClusterSnapshot, NodeView
from airflow_training.state.store import LogPosition
from airflow_training.supervise.followers.measuring import Meter
from airflow_training.supervise.status import run_status
from tests.supervise.conftest import Stage
from tests.supervise.test_planning import TINY, plan_of, planned, resolved

GPT = {"hidden": 1024, "layers": 8, "heads": 16, "seq": 1024, "vocab": 32000}
NODES: dict[str, Any] = {
    "name": "lab",
    "nodes": [{"count": 3, "device": "A100-SXM4-80GB", "devices_per_node": 1, "nic_gbit_s": 200}],
}


class Lab:
    """Jobs that are planned with what the store's runs measured, and runs that measure."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage

    def job(self, **plan: Any) -> ResolvedJob:
        return resolved(
            planned(
                {"name": "worker"},
                spec={"framework": "custom"},
                history=history_of(self.stage.store),
                **{
                    "cluster": NODES,
                    "globalBatch": 12,
                    "constraints": {"devices": 3},
                    **plan,
                },
            )
        )

    def plan(self, **plan: Any) -> Mapping[str, Any]:
        found = self.job(**plan).plan
        assert found is not None
        return found.document

    async def run(
        self, job: ResolvedJob, *, seconds: float, scaled_to: int = 3, **metrics: float
    ) -> Run:
        run = Run(self.stage, job, replicas=scaled_to)
        await run.train(seconds, **metrics)
        return run


class Run:
    """A run whose first instance reports steps, with its meter."""

    def __init__(self, stage: Stage, job: ResolvedJob, *, replicas: int = 3) -> None:
        self.store = stage.store
        self.uid = stage.launch(job, run_id=f"run-{len(stage.store.runs())}")
        self.job = job
        entry = InstanceEntry(key=InstanceKey("worker", 0), state="running")
        self.ledger = Ledger(
            job=JobEntry(state="Running"),
            roles={"worker": RoleEntry(role="worker", replicas=replicas)},
            instances={InstanceKey("worker", 0): entry},
        )
        self.meter = Meter(
            store=self.store,
            uid=self.uid,
            state=lambda: (self.job, self.ledger),
            on_progress=lambda _: None,
        )
        self.step, self.now = 0, 1000.0

    async def train(self, seconds: float, **metrics: float) -> None:
        """Report four steps that each take so long."""
        for _ in range(4):
            self.step, self.now = self.step + 1, self.now + seconds
            said = ProgressReport(step=self.step, time=self.now, metrics=metrics)
            self.store.progress.save(self.uid, {InstanceKey("worker", 0): said})
            await self.meter.poll()

    def measured(self) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = run_status(self.store, self.uid)["plan"]["measured"]
        return found


@pytest.fixture
def lab(stage: Stage) -> Lab:
    return Lab(stage)


def origins(plan: Mapping[str, Any], kind: str) -> set[str]:
    return {part["origin"] for part in plan["breakdown"][kind]}


async def test_the_next_plan_of_the_same_model_says_measured(lab):
    first = lab.job()
    run = await lab.run(first, seconds=0.5, peak_memory_bytes=3e9)
    plan = lab.plan()
    assert plan["strategy"] == first.plan.strategy
    assert plan["step_time_s"] == pytest.approx(0.5)
    assert plan["peak_memory_bytes"] == 3e9
    assert origins(first.plan.document, "time_s") == {"static"}
    assert origins(plan, "time_s") == origins(plan, "memory_bytes") == {"measured"}
    assert plan["p10"] < 0.5 < plan["p90"]
    factor = plan["measurements"]["factor"]
    assert factor == pytest.approx(0.5 / first.plan.step_seconds)
    assert plan["measurements"] == {
        "subject": first.plan.subject,
        "factor": factor,
        "strategies": 1,
        "runs": 1,
    }
    assert run.measured() == {
        "step_time_s": pytest.approx(0.5),
        "steps": 3,
        "peak_memory_bytes": 3e9,
    }


async def test_progress_that_only_the_log_tells_is_measured(lab):
    run = Run(lab.stage, lab.job())
    before = None
    for step in range(1, 6):
        after = LogPosition(epoch=0, job_attempt=0, attempt=0, done=100 * step)
        progress = ProgressReport(step=step, time=1000.0 + 0.5 * step)
        run.store.log_values.save(
            run.uid,
            InstanceKey("worker", 0),
            before=before,
            after=after,
            values=(),
            progress=progress,
        )
        await run.meter.poll()
        before = after
    measured = run.measured()
    assert measured is not None
    assert measured["step_time_s"] == pytest.approx(0.5)


async def test_a_plan_for_another_model_is_worked_out(lab):
    await lab.run(lab.job(), seconds=0.5)
    plan = lab.plan(model={**TINY, "layers": 2})
    assert origins(plan, "time_s") == {"static"}
    assert "factor" not in plan["measurements"]


async def test_a_run_that_plans_again_knows_what_it_measured(lab, stage):
    job = lab.job(model=GPT, constraints={"tp": 1, "pp": 1, "devices": {"max": 3}})
    assert job.plan.document["devices"] == 3
    run = await lab.run(job, seconds=0.5)
    factor = 0.5 / job.plan.step_seconds
    alone = {**NODES, "nodes": [{**NODES["nodes"][0], "count": 2}]}
    asked = {**job.document["spec"], "plan": {**job.document["spec"]["plan"], "cluster": alone}}
    changed = replace(
        job,
        document={**job.document, "spec": asked},
        checkpoint=ResolvedCheckpoint(every=SaveEverySeconds(60)),
    )
    verdict = replan_run(
        ReplanInput(
            job=changed, machines=ClusterSnapshot(nodes=()), step=10_000, launch_seconds=0.0
        ),
        before=job.plan.cluster_view,
        history=history_of(stage.store),
    )
    assert verdict.job is not None, verdict
    new = verdict.job.plan
    assert new is not None
    [runtime] = [part for part in new.document["breakdown"]["time_s"] if part["name"] == "runtime"]
    assert runtime["origin"] == "measured"
    assert new.measured_factor == pytest.approx(factor)
    assert 121 <= verdict.data["cost_steps"] < 150, "a minute of steps that take half a second"

    run.job = verdict.job
    run.ledger = replace(run.ledger, roles={"worker": RoleEntry(role="worker", replicas=2)})
    assert run.measured() is not None
    await run.train(0.75)
    found = {
        each.plan: each.step_seconds for each in stage.store.measurements.about(job.plan.subject)
    }
    assert found == {
        job.plan.id: pytest.approx(0.5),
        new.id: pytest.approx(0.75),
    }


@pytest.mark.parametrize("why", ["not-applied", "scaled-by-hand", "no-steps", "one-step-only"])
async def test_nothing_is_measured_where_it_would_not_be_of_the_plan(lab, why):
    if why == "not-applied":
        run = await lab.run(lab.job(apply=["replicas"]), seconds=0.5)
    elif why == "scaled-by-hand":
        run = await lab.run(lab.job(), seconds=0.5, scaled_to=2)
    else:
        run = Run(lab.stage, lab.job())
        for step in (None, None, None, 1 if why == "one-step-only" else None):
            line = ProgressReport(step=step, time=1.0, metrics={"loss": 1.0})
            run.store.progress.save(run.uid, {InstanceKey("worker", 0): line})
            await run.meter.poll()
    assert run.measured() is None
    assert origins(lab.plan(), "time_s") == {"static"}


async def test_a_run_goes_on_where_nothing_can_be_measured(lab, monkeypatch, caplog):
    run = Run(lab.stage, lab.job())
    monkeypatch.setattr(run.store.progress, "newest", lambda _: 1 / 0)
    for _ in range(3):
        await run.meter.poll()
    assert caplog.text.count("nothing could be measured") == 1


# links ----------------------------------------------------------------------------------------------
GPUS = [
    NodeView(
        name=f"gpu-{number}",
        cpus=8,
        memory_bytes=2**36,
        gpus=1,
        labels={"nvidia.com/gpu.product": product},
    )
    for number, product in enumerate(
        ["NVIDIA-A100-SXM4-80GB", "NVIDIA-A100-SXM4-80GB", "Tesla-V100-SXM2-32GB"]
    )
]


def measure_links(lab: Lab, *, node: str = "gpu-0", runtime: str = "local", **metrics: float):
    """Store a run of the measuring job that ended well on a node."""
    store = lab.stage.store
    job = replace(lab.job(), name="measure-cluster", runtime=runtime, plan=None)
    uid = lab.stage.launch(job, run_id=f"links-{len(store.runs())}")
    store.progress.save(uid, {InstanceKey("worker", 0): ProgressReport(time=1.0, metrics=metrics)})
    lease, old = store.acquire(uid, owner="me"), store.ledger(uid)
    assert lease is not None
    entry = InstanceEntry(key=InstanceKey("worker", 0), state="succeeded", node=node)
    over = replace(old.job, state="Succeeded", drained=True)
    new = replace(old, job=over, instances={InstanceKey("worker", 0): entry})
    store.commit(uid, lease=lease, old=old, new=new, events=[])


def on_gpus(lab: Lab) -> Mapping[str, Any]:
    return plan_of(
        planned(
            {"name": "worker"},
            nodes=GPUS,
            spec={"framework": "custom", "resources": {"limits": {"nvidia.com/gpu": 1}}},
            history=history_of(lab.stage.store),
            constraints={"devices": {"max": 3}},
        )
    )


def networks(plan: Mapping[str, Any]) -> dict[str, float]:
    groups = parse_cluster(plan["cluster_view"]).groups
    return {group.name: group.nic.bandwidth for group in groups if group.nic is not None}


def test_a_plan_counts_with_the_links_that_a_measuring_job_reported(lab):
    before = networks(on_gpus(lab))
    network: dict[str, Any] = {"inter_node_pairs": 1.0, "inter_node_latency_seconds": 1e-5}
    measure_links(lab, **network, inter_node_bandwidth=2e9)
    plan = on_gpus(lab)
    assert networks(plan) == {**before, "A100-SXM4-80GB": 2e9}, "nothing was measured on V100"
    assert plan["warnings"] == ["assumed: links reach what run 'links-0' measured"]

    measure_links(lab, **network, inter_node_bandwidth=1e9)
    assert networks(on_gpus(lab))["A100-SXM4-80GB"] == 1e9


@pytest.mark.parametrize(
    "run",
    [
        pytest.param({"node": "gone"}, id="on-nodes-that-are-gone"),
        pytest.param({"runtime": "kubernetes"}, id="on-another-runtime"),
        pytest.param({"inter_node_pairs": 0.0}, id="of-no-pair"),
    ],
)
def test_links_of_other_nodes_tell_nothing(lab, run):
    metrics = {"inter_node_pairs": 1.0, "inter_node_latency_seconds": 1e-5}
    before = networks(on_gpus(lab))
    measure_links(lab, **{**metrics, "inter_node_bandwidth": 2e9, **run})
    assert networks(on_gpus(lab)) == before

"""The run's record is a fence: whoever lost the run, or slept while it was removed, creates nothing."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import LeaseLost
from airflow_training.runtimes.adapter import SweepQuery
from airflow_training.runtimes.kubernetes.names import SPARE
from airflow_training.runtimes.port import InstanceSpec, SpareRequest
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.samples import an_instance
from tests.waiting import until

JOB = resolved()
FIRST = RunRef(uid="a" * 20, job="digits", namespace="default", controller="tests", generation=1)


def held_by(generation: int) -> RunRef:
    return dataclasses.replace(FIRST, generation=generation)


def instance_of(run: RunRef) -> InstanceSpec:
    made = an_instance(JOB)
    return dataclasses.replace(made, ref=dataclasses.replace(made.ref, run=run))


def objects(stage: Stage) -> list[str]:
    return [
        each["metadata"]["name"]
        for plural in ("pods", "services", "configmaps")
        for each in stage.cluster.control.list(plural, namespace="default")
        if "airflow-training/run" in (each["metadata"].get("labels") or {})
    ]


async def test_a_new_holder_that_stalls_while_the_run_is_removed_makes_nothing(stage: Stage):
    holder, other, control = stage.runtime(), stage.runtime(), stage.cluster.control
    await other.prepare(FIRST, JOB)
    control.hold_requests(verb="update", path="/configmaps/")
    creating = asyncio.create_task(holder.create([instance_of(held_by(2))]))
    await until(control.held_requests)
    await other.remove(held_by(3))
    assert objects(stage) == []
    control.let_requests_go()
    (outcome,) = await creating
    assert outcome.result == "refused"
    assert objects(stage) == []


def spare_of(run: RunRef) -> SpareRequest:
    return SpareRequest(role="worker", number=1, spec=instance_of(run))


async def test_a_spare_that_comes_after_the_removal_is_ended(stage: Stage):
    holder, other, control = stage.runtime(), stage.runtime(), stage.cluster.control
    await other.prepare(FIRST, JOB)
    control.hold_requests(verb="create", path="/pods$")
    holding = asyncio.create_task(holder.hold_spares(FIRST, [spare_of(FIRST)]))
    await until(control.held_requests)
    await other.remove(FIRST)
    control.let_requests_go()
    with pytest.raises(LeaseLost, match="removed"):
        await holding
    await until(lambda: not control.list("pods", namespace="default"))


async def test_a_spare_that_was_left_is_swept(stage: Stage):
    runtime = stage.runtime()
    await runtime.prepare(FIRST, JOB)
    await runtime.create([instance_of(FIRST)])
    await until(lambda: stage.pods()["worker-0"]["status"]["phase"] == "Running")
    await runtime.hold_spares(FIRST, [spare_of(FIRST)])
    (left,) = (
        each
        for each in stage.cluster.control.list("pods", namespace="default")
        if SPARE in each["metadata"]["labels"]
    )
    stage.cluster.control.finish(stage.name("worker-0"))
    await runtime.remove(held_by(2))
    kept = stage.pods()
    for name in ("resourceVersion", "uid", "creationTimestamp"):
        left["metadata"].pop(name, None)
    stage.cluster.control.create({"apiVersion": "v1", "kind": "Pod", **left})
    (orphan,) = await runtime.find_orphans(
        SweepQuery(
            namespace="default",
            controller="tests",
            living=(),
            known=[FIRST.uid],
            older_than=float("inf"),
        )
    )
    await runtime.remove(orphan.run)
    pods = stage.cluster.control.list("pods", namespace="default")
    assert [each["metadata"]["name"] for each in pods] == [
        each["metadata"]["name"] for each in kept.values()
    ]


async def test_a_record_that_comes_after_the_removal_lets_nobody_create_and_is_swept(stage: Stage):
    stale, other, control = stage.runtime(), stage.runtime(), stage.cluster.control
    control.hold_requests(verb="create", path="/configmaps$")
    preparing = asyncio.create_task(stale.prepare(held_by(2), JOB))
    await until(control.held_requests)
    await other.remove(held_by(3))
    control.let_requests_go()
    await preparing
    (outcome,) = await other.create([instance_of(FIRST)])
    assert outcome.result == "refused"
    assert not stage.pods()
    (orphan,) = await other.find_orphans(
        SweepQuery(
            namespace="default",
            controller="tests",
            living=(),
            known=[FIRST.uid],
            older_than=float("inf"),
        )
    )
    await other.remove(orphan.run)
    assert objects(stage) == []


@pytest.mark.parametrize("generation", [1, 2])
async def test_a_generation_that_was_removed_prepares_nothing_while_pods_are_kept(
    stage: Stage, generation: int
):
    runtime = stage.runtime()
    await runtime.prepare(FIRST, JOB)
    await runtime.create([instance_of(FIRST)])
    await until(lambda: stage.pods()["worker-0"]["status"]["phase"] == "Running")
    stage.cluster.control.finish(stage.name("worker-0"))
    await runtime.remove(held_by(2))
    before = objects(stage)
    with pytest.raises(LeaseLost, match="removed under generation 2"):
        await runtime.prepare(held_by(generation), JOB)
    assert objects(stage) == before

"""A node where runs failed too often is told of once, and nothing new of any run is placed on it."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from airflow_training.control.node_faults import ExclusionRules
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.faults import Behaviour, Fault, Script
from airflow_training.runtimes.memory import MemoryRuntime
from airflow_training.runtimes.port import InstanceSpec, InstanceUpdate, Outcome, Snapshot
from airflow_training.settings import Settings
from airflow_training.supervise.followers import node_faults
from airflow_training.supervise.followers.node_faults import exclusion_rules
from tests.builders import job, role
from tests.waiting import PATIENCE


class _Placed(MemoryRuntime):
    """The simulated runtime on nodes: instance i of each role is on node i, wherever it may be."""

    capabilities = dataclasses.replace(MemoryRuntime.capabilities, excludes_nodes=True)
    kept_from: list[tuple[str, ...]]

    async def create(self, instances: Sequence[InstanceSpec]) -> Sequence[Outcome]:
        self.kept_from += [each.excluded_nodes for each in instances]
        return await super().create(instances)

    async def watch(self, run: RunRef) -> AsyncIterator[Any]:
        async for change in super().watch(run):
            match change:
                case Snapshot(instances=seen):
                    yield Snapshot(instances=[_on_node(each) for each in seen])
                case InstanceUpdate(instance=one):
                    yield InstanceUpdate(instance=_on_node(one))
                case _:
                    yield change


def _on_node(seen: Any) -> Any:
    return dataclasses.replace(seen, node=f"n{seen.index}")


@pytest.fixture
def runtime() -> _Placed:
    made = _Placed(
        script=Script(
            default=Behaviour(run_seconds=0.05),
            faults=(Fault(kind="kill", role="worker", index=0, after=0.01, exit_code=1, reason="EnvironmentNotReady"),),
        )
    )  # fmt: skip
    made.kept_from = []
    return made


def _job(**fields: Any) -> Any:
    return job(role("worker", 2), max_restarts=3, scope="Instance", runtime="memory", **fields)


async def test_a_node_is_excluded_by_its_failures_and_later_runs_keep_away(stage, runtime):
    uid = stage.launch(_job())
    run = stage.supervisor(uid, runtime=runtime).run()
    assert await asyncio.wait_for(run, PATIENCE) == "Failed"
    told = [each.event for each in stage.store.events(uid) if each.event.reason == "NodeExcluded"]
    assert [each.data["node"] for each in told] == ["n0"]
    assert "3 failures in 24 h in 1 run (infrastructure)" in told[0].message
    assert [each for each in stage.events if each.reason == "NodeExcluded"] == told
    assert () in runtime.kept_from

    runtime.script = Script(default=Behaviour(run_seconds=0.05))
    for run_id, avoids, kept_from in (("two", True, ("n0",)), ("three", False, ())):
        runtime.kept_from.clear()
        uid = stage.launch(_job(avoids_excluded=avoids), run_id=run_id)
        run = stage.supervisor(uid, runtime=runtime).run()
        assert await asyncio.wait_for(run, PATIENCE) == "Succeeded"
        assert set(runtime.kept_from) == {kept_from}
        assert "NodeExcluded" not in stage.reasons(uid)


async def test_the_failure_that_ends_a_run_is_counted_too(stage, runtime, monkeypatch):
    monkeypatch.setenv("AIRFLOW__TRAINING__NODE_FAILURES", "1")
    uid = stage.launch(job(role("worker", restart_policy="Never"), runtime="memory"))
    run = stage.supervisor(uid, runtime=runtime).run()
    assert await asyncio.wait_for(run, PATIENCE) == "Failed"
    assert stage.reasons(uid).count("NodeExcluded") == 1


@pytest.mark.parametrize(("failing", "excluded"), [(1000, 0), (1, 1)], ids=["never", "once"])
async def test_a_run_goes_on_while_its_failures_cannot_be_recorded(
    stage, runtime, monkeypatch, failing, excluded
):
    """As where the settings cannot be read any more: nothing that trains needs them."""
    tries = iter(range(1000))

    def rules(settings: Settings) -> ExclusionRules:
        if next(tries) < failing:
            raise ValueError("[training] node_failures: 'x' is no whole number")
        return exclusion_rules(settings)

    monkeypatch.setattr(node_faults, "exclusion_rules", rules)
    uid = stage.launch(_job())
    run = stage.supervisor(uid, runtime=runtime).run()
    assert await asyncio.wait_for(run, PATIENCE) == "Failed"
    assert stage.reasons(uid).count("NodeExcluded") == excluded

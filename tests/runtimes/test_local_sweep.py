"""Sweeping finds what lives although nobody should be running it, and only one's own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from airflow_training.runtimes.local import LocalRuntime
from tests.contracts.runtime import Harness, watching
from tests.runtimes.local_runs import agent_pid, alive, attempt_folder, local_harness

pytestmark = pytest.mark.e2e


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[Harness]:
    async with local_harness(tmp_path) as harness:
        await harness.runtime.create([harness.spec("sleeper")])
        yield harness


def local(harness: Harness) -> LocalRuntime:
    assert isinstance(harness.runtime, LocalRuntime)
    return harness.runtime


async def test_an_unknown_run_that_lives_is_an_orphan(harness: Harness, tmp_path: Path) -> None:
    pid = agent_pid(attempt_folder(tmp_path, harness, "sleeper"))
    found = await local(harness).find_orphans(controller="tests", known_uids=())
    assert [(o.run, o.instances, o.pids) for o in found] == [(harness.run, ("sleeper-0",), (pid,))]
    await harness.runtime.remove(found[0].run)
    assert not alive(pid)
    assert await local(harness).find_orphans(controller="tests", known_uids=()) == []


@pytest.mark.parametrize(
    ("controller", "known"),
    [
        pytest.param("somebody-else", False, id="another-deployment's"),
        pytest.param("tests", True, id="a-run-that-is-not-over"),
    ],
)
async def test_others_are_left_alone(harness: Harness, controller: str, known: bool) -> None:
    uids = [harness.run.uid] if known else []
    assert await local(harness).find_orphans(controller=controller, known_uids=uids) == []


async def test_a_run_that_has_ended_is_none(harness: Harness) -> None:
    async with watching(harness.runtime, harness.run) as seen:
        await harness.runtime.delete([harness.ref("sleeper")], grace_seconds=0)
        await seen.gone("sleeper", 0)
    assert await local(harness).find_orphans(controller="tests", known_uids=()) == []


async def test_living_instances_are_taken_off_what_is_free(harness: Harness) -> None:
    before = (await harness.runtime.cluster_view()).nodes[0]
    asked = {"cpu": "500m", "memory": "64Mi"}
    await harness.runtime.create([harness.spec("sleeper", 1, resources=asked)])
    after = (await harness.runtime.cluster_view()).nodes[0]
    assert after.cpus == before.cpus
    assert before.free_cpus is not None
    assert after.free_cpus == before.free_cpus - 0.5

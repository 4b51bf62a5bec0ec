"""Sweeping finds what lives although nobody should be running it, and only one's own."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from airflow_training.documents.resolved import RunRef
from airflow_training.errors import StillAlive
from airflow_training.runtimes.local.runtime import LocalRuntime
from tests.contracts.runtime import JOB, Harness, watching
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


async def test_what_stays_for_a_look_inside_is_taken_off_what_is_free(harness: Harness) -> None:
    runtime = local(harness)
    await runtime.delete([harness.ref("sleeper")], grace_seconds=0)
    before = (await runtime.cluster_view()).nodes[0].free_cpus
    assert before is not None
    asked = {"cpu": "500m", "memory": "64Mi"}
    async with watching(runtime, harness.run) as seen:
        await runtime.create([harness.spec("broken", in_place_seconds=60.0, resources=asked)])
        waiting = await seen.state("broken", 0, "failed", in_place=True)
        await runtime.keep(harness.ref("broken", uid=waiting.uid), seconds=600)
        await seen.state("broken", 0, "failed", kept=True)
    await runtime.remove(harness.run)
    assert (await runtime.cluster_view()).nodes[0].free_cpus == before - 0.5
    await runtime.end_kept(harness.run)
    assert (await runtime.cluster_view()).nodes[0].free_cpus == before


# folders whose time is over ------------------------------------------------------------------------
async def removed(harness: Harness) -> RunRef:
    await harness.runtime.remove(harness.run)
    return harness.run


async def test_the_folder_of_a_removed_run_goes(harness: Harness, tmp_path: Path) -> None:
    run = await removed(harness)
    await local(harness).quarantine(run)
    assert not (tmp_path / run.uid).exists()
    await local(harness).delete_quarantined(run.uid)
    assert list((tmp_path / ".deleting").iterdir()) == []


@pytest.mark.parametrize("steps", range(4))
async def test_what_the_job_names_stays_where_it_is(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """`steps`: after so many a process is killed that takes the folder away, and another one goes on."""
    run = await removed(harness)
    model = tmp_path / run.uid / "files" / "models" / "digits"
    model.parent.mkdir(parents=True)
    model.write_text("model")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", _killed_after(steps, Path.rename))
        with contextlib.suppress(KeyboardInterrupt):
            await local(harness).quarantine(run)
    await local(harness).quarantine(run)
    await local(harness).delete_quarantined(run.uid)
    assert model.read_text() == "model"
    assert [each.name for each in (tmp_path / run.uid).iterdir()] == ["files"]
    assert list((tmp_path / ".deleting").iterdir()) == []


def _killed_after(steps: int, rename: Callable[[Path, Path], Path]) -> Callable[[Path, Path], Path]:
    left = iter(range(steps))

    def renamed(self: Path, target: Path) -> Path:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return rename(self, target)

    return renamed


async def test_what_a_killed_process_did_not_delete_goes_with_the_next(
    harness: Harness, tmp_path: Path
) -> None:
    await local(harness).quarantine(await removed(harness))
    await local(harness).delete_quarantined("another")
    assert list((tmp_path / ".deleting").iterdir()) == []


async def test_what_cannot_be_deleted_is_told(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = await removed(harness)
    await local(harness).quarantine(run)
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: None)
        with pytest.raises(OSError, match=run.uid):
            await local(harness).delete_quarantined(run.uid)
    await local(harness).delete_quarantined(run.uid)


@pytest.mark.parametrize("why", ["not-removed", "opened-again", "another-deployment's"])
async def test_no_other_folder_goes(harness: Harness, tmp_path: Path, why: str) -> None:
    run = harness.run
    if why != "not-removed":
        await removed(harness)
    if why == "opened-again":
        await harness.runtime.prepare(harness.later(1), JOB)
    elif why == "another-deployment's":
        run = dataclasses.replace(run, controller="somebody-else")
    with pytest.raises(StillAlive):
        await local(harness).quarantine(run)
    assert (tmp_path / run.uid / "run.json").exists()
    await harness.runtime.remove(harness.later(1))


async def test_only_runs_with_a_time_to_live_are_ever_looked_at(tmp_path: Path) -> None:
    runtime = LocalRuntime(local_dir=tmp_path)

    async def prepare(uid: str, seconds: float | None) -> None:
        run = RunRef(uid=uid, job="j", namespace="default", controller="tests")
        await runtime.prepare(
            run, dataclasses.replace(JOB, roles=(), ttl_seconds_after_finished=seconds)
        )

    await prepare("for-ever", None)
    assert not (tmp_path / ".expiring").exists()
    await prepare("long", 3600)
    await prepare("short", 0)
    assert await runtime.due_runs() == ["short"]
    await runtime.look_again("short", seconds=60)
    await runtime.look_again("long", seconds=-60)
    assert await runtime.due_runs() == ["long"]

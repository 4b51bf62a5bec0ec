"""What a sweep ends on a cluster, what it leaves alone, and what it says before it does."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Sequence

import pytest

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.kubernetes import logs, names
from airflow_training.runtimes.kubernetes.api import Api
from airflow_training.runtimes.kubernetes.kinds import PODS
from airflow_training.settings import Settings, load_settings
from airflow_training.state.store import Store
from airflow_training.supervise import sweep as sweeping
from airflow_training.supervise.sweep import SweepResult, sweep
from tests.kubernetes.conftest import CONTROLLER, Stage, connect_to, resolved
from tests.waiting import PATIENCE


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a sweep look at what was made a moment ago too."""
    monkeypatch.setattr(sweeping, "_BEGINNING_SECONDS", -60.0)


@pytest.fixture
def settings(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("AIRFLOW_HOME", str(stage.folder))
    monkeypatch.setenv("AIRFLOW__TRAINING__DEPLOYMENT_ID", CONTROLLER)
    return load_settings()


async def swept(
    stage: Stage, settings: Settings, *, dry_run: bool = False
) -> Sequence[SweepResult]:
    return await sweep(
        store=stage.store,
        settings=settings,
        idle_seconds=3600.0,
        dry_run=dry_run,
        connect={"kubernetes": connect_to(stage.cluster)},
    )


async def ended(stage: Stage, job: ResolvedJob, *, run_id: str = "one") -> str:
    """Return the uid of a run that was driven to its end."""
    uid = stage.launch(job, run_id=run_id)
    async with stage.driving(uid) as task:
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    return uid


def objects(stage: Stage) -> list[str]:
    """Return what the cluster holds of ours, by kind."""
    return [
        plural
        for plural in ("pods", "services", "configmaps", "secrets")
        for each in stage.cluster.control.list(plural, namespace="default")
        if "airflow-training/run" in (each["metadata"].get("labels") or {})
    ]


QUICK = {"name": "worker", "command": ["true"]}


async def test_ended_pods_stay_until_their_time_is_over(
    stage: Stage, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    job = resolved(QUICK, ttlSecondsAfterFinished=3600)
    await ended(stage, job)
    assert objects(stage) == ["pods", "configmaps"], "what cleanPodPolicy keeps, and the record"
    assert await swept(stage, settings) == []
    await ended(stage, dataclasses.replace(job, ttl_seconds_after_finished=600.0), run_id="two")
    assert await swept(stage, settings) == []
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 601.0)
    looked = await swept(stage, settings, dry_run=True)
    assert [(each.run_id, each.done) for each in looked] == [("two", False)]
    assert objects(stage) == ["pods"] * 2 + ["configmaps"] * 2, "it only looked"
    assert [(each.run_id, each.done) for each in await swept(stage, settings)] == [("two", True)]
    assert objects(stage) == ["pods", "configmaps"]
    assert await swept(stage, settings) == []


async def test_the_time_of_ended_pods_begins_with_the_end_of_the_job(
    stage: Stage, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    first = {"name": "first", "command": ["true"]}
    last = {"name": "last", "command": ["sleep", "3"]}
    await ended(stage, resolved(first, last, ttlSecondsAfterFinished=1))
    assert sorted(stage.pods()) == ["first-0", "last-0"], "only a sweep removes them"
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 2.0)
    assert [each.done for each in await swept(stage, settings)] == [True]
    assert objects(stage) == []


async def test_archived_logs_that_cannot_be_deleted_are_deleted_by_the_next_sweep(
    stage: Stage, settings: Settings, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("AIRFLOW__TRAINING__LOG_ARCHIVE", str(stage.folder / "logs"))
    talker = {"name": "worker", "command": ["echo", "words"]}
    await ended(stage, resolved(talker, ttlSecondsAfterFinished=600))
    archived = [*(stage.folder / "logs").rglob("*.log")]
    assert archived
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() + 601.0)
    with monkeypatch.context() as patch:

        def away(uri: str) -> None:
            raise OSError(f"no connection to {uri}")

        patch.setattr(logs, "_remove_folder", away)
        (found,) = await swept(stage, settings)
    assert not found.done
    assert "no connection" in found.problem
    assert [each.done for each in await swept(stage, settings)] == [True]
    assert not any(each.exists() for each in archived)
    assert await swept(stage, settings) == []


async def test_nothing_stays_where_the_job_says_so(stage: Stage):
    await ended(stage, resolved(QUICK, cleanPodPolicy="All"))
    assert objects(stage) == []


async def test_what_belongs_to_no_run_is_ended(stage: Stage, settings: Settings):
    lost = Store(f"sqlite:///{stage.folder / 'lost.db'}")
    before = Stage(store=lost, cluster=stage.cluster, folder=stage.folder)
    uid = before.launch(resolved())
    async with before.driving(uid):
        await before.until_running(uid)
    lost.close()
    await ended(stage, resolved(QUICK, cleanPodPolicy="All"), run_id="other")
    (found,) = await swept(stage, settings, dry_run=True)
    assert (found.uid, found.done) == (uid, False)
    assert "node-" in found.why
    assert stage.pods()["worker-0"]["status"]["phase"] == "Running"
    (found,) = await swept(stage, settings)
    assert (found.uid, found.done, found.problem) == (uid, True, "")
    assert objects(stage) == []


async def test_a_run_that_is_alive_and_those_of_others_are_left_alone(
    stage: Stage, settings: Settings
):
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
        theirs = dataclasses.replace(settings, deployment_id="somebody-else")
        assert await swept(stage, settings) == []
        assert await swept(stage, theirs) == []
        await stage.until_running(uid)


async def test_a_run_that_nobody_drives_is_stopped(stage: Stage, settings: Settings):
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
    (found,) = await sweep(
        store=stage.store,
        settings=settings,
        idle_seconds=0.0,
        dry_run=False,
        connect={"kubernetes": connect_to(stage.cluster)},
    )
    assert (found.uid, found.done) == (uid, True)
    assert stage.store.ledger(uid).job.state == "Stopped"
    assert "Running" not in {pod["status"]["phase"] for pod in stage.pods().values()}


async def test_a_record_goes_once_the_pods_that_it_was_kept_for_are_gone(
    stage: Stage, settings: Settings
):
    uid = await ended(stage, resolved(QUICK))
    assert objects(stage) == ["pods", "configmaps"]
    stage.cluster.control.delete("pods", stage.name("worker-0"), grace_seconds=0)  # as a drain does
    (found,) = await swept(stage, settings)
    assert (found.uid, found.done, found.problem) == (uid, True, "")
    assert objects(stage) == []
    assert await swept(stage, settings) == []


async def test_a_pod_that_stayed_for_a_look_inside_is_found_once_its_time_is_over(
    stage: Stage, settings: Settings
):
    uid = await ended(stage, resolved(QUICK))
    api, name = Api(connect_to(stage.cluster)), stage.name("worker-0")
    until = {names.KEPT_UNTIL: f"{time.time() + 60:.0f}"}
    await api.patch(PODS, "default", name, {"metadata": {"annotations": until}})
    assert await swept(stage, settings) == []
    until = {names.KEPT_UNTIL: f"{time.time() - 60:.0f}"}
    await api.patch(PODS, "default", name, {"metadata": {"annotations": until}})
    (found,) = await swept(stage, settings)
    assert (found.uid, found.done, found.problem) == (uid, True, "")
    assert objects(stage) == ["pods", "configmaps"], "as cleanPodPolicy says of any that has ended"
    assert await swept(stage, settings) == []


RIGHTS = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
SEES_NAMESPACES = {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]}


@pytest.mark.parametrize("sees_namespaces", [True, False])
async def test_a_namespace_that_was_deleted_after_its_last_run_is_no_problem(
    stage: Stage, settings: Settings, sees_namespaces: bool
):
    control = stage.cluster.control
    control.create_namespace("team")
    control.add_user("trainer", token="trainer's")
    control.allow("trainer", RIGHTS, namespace="team")
    cluster_wide = [SEES_NAMESPACES] if sees_namespaces else []
    control.allow("trainer", cluster_wide)
    await ended(stage, resolved(QUICK, namespace="team"))

    async def look() -> Sequence[SweepResult]:
        connect = connect_to(stage.cluster, token="trainer's")
        return await sweep(
            store=stage.store,
            settings=settings,
            idle_seconds=3600.0,
            dry_run=False,
            connect={"kubernetes": connect},
        )

    assert await look() == []
    control.delete("namespaces", "team")
    control.revoke("trainer")
    control.allow("trainer", cluster_wide)
    assert await look() == []
    stage.launch(resolved(namespace="team"), run_id="living")
    problems = [each.problem for each in await look()]
    assert len(problems) == (0 if sees_namespaces else 1), "somebody should know of a living run"


async def test_a_cluster_that_shows_nothing_is_a_problem_that_is_told(
    stage: Stage, settings: Settings
):
    await ended(stage, resolved(QUICK))
    stage.cluster.control.fail_requests(code=403, times=1, verb="list")
    (found,) = await swept(stage, settings)
    assert not found.done
    assert "namespace default" in found.why
    assert found.problem

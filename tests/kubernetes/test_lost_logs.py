"""Logs whose pods or connections went too early: kept as far as anybody could, and said where not."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes import logs
from airflow_training.runtimes.kubernetes.collected import CollectedLog
from airflow_training.runtimes.kubernetes.runtime import KubernetesRuntime
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk
from tests.kubernetes.conftest import Stage, asked_of, resolved
from tests.kubernetes.test_record import FIRST, instance_of
from tests.waiting import PATIENCE, until

WORDS = "".join(f"step {number}\n" for number in range(40))


async def read(stage: Stage) -> LogChunk:
    """Return the log of the first instance as somebody else reads it."""
    return await stage.runtime().read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)


def collected(stage: Stage, uid: str) -> bytes:
    """Return all that is collected of the run's logs."""
    return b"".join(path.read_bytes() for path in (stage.folder / "collected" / uid).glob("*.log"))


async def running(stage: Stage) -> str:
    """Return the name of a running pod that has printed something, and that nobody collects."""
    runtime = stage.runtime()
    await runtime.prepare(FIRST, resolved())
    await runtime.create([instance_of(FIRST)])
    await until(lambda: stage.pods()["worker-0"]["status"]["phase"] == "Running")
    name = stage.name("worker-0")
    stage.cluster.control.print(name, WORDS)
    return name


async def test_a_log_is_archived_when_its_instance_ends_and_not_when_its_pod_goes(stage: Stage):
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        name = stage.name("worker-0")
        control.print(name, WORDS)
        control.finish(name)
        archived = stage.folder / "logs" / uid / "worker-0" / "0.0.0.json"
        await until(archived.exists)
        assert archived.with_suffix(".log").read_text() == WORDS
        assert name == stage.name("worker-0"), "its pod is still there"
        control.finish(stage.name("worker-1"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"


async def test_what_a_pod_printed_that_somebody_else_deletes_is_there(stage: Stage):
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    control = stage.cluster.control
    async with stage.driving(uid):
        await stage.until_running(uid)
        name = stage.name("worker-0")
        control.print(name, WORDS)
        await until(lambda: collected(stage, uid).count(b"step") == WORDS.count("step"))
        control.delete("pods", name, grace_seconds=0)
        await until(lambda: stage.entry(uid).attempt == 1)
        folder = stage.folder / "logs" / uid / "worker-0"
        await until((folder / "0.0.0.json").exists)
        assert (folder / "0.0.0.log").read_text() == WORDS


async def test_a_log_that_breaks_at_the_end_is_said_to_be_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 5.0)  # so that the pod is gone by then
    name = await running(stage)
    stage.cluster.control.break_log(after_bytes=500, how="cut")
    runtime = stage.runtime()
    await runtime.delete([instance_of(FIRST).ref], grace_seconds=1)
    await until(lambda: name not in {pod["metadata"]["name"] for pod in stage.pods().values()})
    await runtime.remove(FIRST)
    chunk = await read(stage)
    assert WORDS.startswith(chunk.data.decode())
    assert len(chunk.data) < len(WORDS)
    assert "its connection broke" in chunk.missing


async def test_a_pod_waits_for_its_log_while_that_cannot_be_opened(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    await running(stage)
    stage.cluster.control.fail_requests(code=500, times=3, path="/log$")
    runtime = stage.runtime()
    await runtime.delete([instance_of(FIRST).ref], grace_seconds=1)
    await runtime.remove(FIRST)
    chunk = await read(stage)
    assert (chunk.data.decode(), chunk.missing) == (WORDS, "")


async def test_a_log_that_nobody_could_read_is_said_to_be_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.001)
    await running(stage)
    stage.cluster.control.fail_requests(code=500, times=1000, path="/log$")
    runtime = stage.runtime()
    await runtime.delete([instance_of(FIRST).ref], grace_seconds=1)
    await runtime.remove(FIRST)
    chunk = await read(stage)
    assert chunk.data == b""
    assert "breaks off again and again" in chunk.missing


def keep_a_part(stage: Stage, uid: str) -> Path:
    """Let the archive have only the first line of a log; return the folder with it."""
    folder = stage.folder / "logs" / uid / "worker-0"
    folder.mkdir(parents=True)
    (folder / "0.0.0.log").write_text("step 0\n")
    (folder / "0.0.0.json").write_text('{"start": 0, "size": 7, "missing": "it broke"}')
    return folder


async def ended(stage: Stage) -> KubernetesRuntime:
    """Return a runtime that has kept nothing of the log of an ended pod, as the server did not give it."""
    name = await running(stage)
    stage.cluster.control.finish(name)
    await until(lambda: stage.pods()["worker-0"]["status"]["phase"] == "Succeeded")
    return stage.runtime()


@pytest.mark.parametrize("after_bytes", [0, 200])
async def test_a_log_that_could_not_be_archived_is_read_from_its_pod(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, after_bytes: int
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr(logs, "_BROKEN_IN_A_ROW", 1)
    runtime = await ended(stage)
    stage.cluster.control.break_log(after_bytes=after_bytes, how="cut")
    chunk = await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)
    assert chunk.missing
    chunk = await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)
    assert (chunk.data.decode(), chunk.end, chunk.missing) == (WORDS, True, "")


async def test_a_log_whose_rest_cannot_be_had_is_not_asked_for_at_each_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_BROKEN_IN_A_ROW", 1)
    runtime = await ended(stage)
    for _ in range(2):
        stage.cluster.control.break_log(after_bytes=200, how="cut")
    parts = [await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)]
    parts += [await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)]
    before = asked_of(runtime)
    for _ in range(20):
        parts += [await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)]
    assert asked_of(runtime) == before
    assert all(each.missing and each.end and WORDS.startswith(each.data.decode()) for each in parts)


async def test_a_part_of_a_log_is_read_while_the_server_refuses(stage: Stage):
    runtime = await ended(stage)
    keep_a_part(stage, FIRST.uid)
    stage.cluster.control.fail_requests(code=403, times=100)
    chunk = await runtime.read_log(instance_of(FIRST).ref, Cursor(), limit=1 << 20)
    assert (chunk.data, chunk.end, chunk.missing) == (b"step 0\n", True, "it broke")


async def test_a_log_that_was_collected_and_archived_in_part_is_whole_when_its_run_is_removed(
    stage: Stage,
):
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
        stage.cluster.control.print(stage.name("worker-0"), WORDS)
        await until(lambda: collected(stage, uid).count(b"step") == WORDS.count("step"))
    record = stage.store.run(uid)
    assert record is not None
    folder = keep_a_part(stage, uid)
    stage.cluster.control.delete("pods", stage.name("worker-0"), grace_seconds=0)
    await until(lambda: not stage.pods())
    await stage.runtime().remove(record.ref())
    assert (folder / "0.0.0.log").read_text() == WORDS


async def test_whose_a_log_is_stands_beside_it_as_soon_as_anything_is_collected(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """Whoever collects it may be killed at any moment, and its pod go."""
    append, noted = CollectedLog.append, []

    def appended(self: CollectedLog, data: bytes) -> None:
        noted.append(self.path.with_suffix(".json").exists())
        append(self, data)

    monkeypatch.setattr(CollectedLog, "append", appended)
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
        stage.cluster.control.print(stage.name("worker-0"), WORDS)
        await until(lambda: collected(stage, uid).count(b"step") == WORDS.count("step"))
    assert noted
    assert all(noted)


async def test_a_log_of_which_nothing_is_left_is_not_empty(stage: Stage):
    name = await running(stage)
    stage.cluster.control.delete("pods", name, grace_seconds=0)
    await until(lambda: not stage.pods())
    chunk = await read(stage)
    assert (chunk.data, chunk.end) == (b"", True)
    assert chunk.missing == "its pod is gone, and its log is not in the archive"


async def test_a_program_that_printed_nothing_has_an_empty_log(stage: Stage):
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        stage.cluster.control.finish(stage.name("worker-0"))
        assert await asyncio.wait_for(task, PATIENCE) == "Succeeded"
    (about,) = (stage.folder / "logs").rglob("*.json")
    assert about.read_text() == '{"start": 0, "size": 0}'


async def test_what_was_collected_is_read_where_nobody_drives_and_the_pod_is_gone(stage: Stage):
    uid = stage.launch(resolved())
    async with stage.driving(uid):
        await stage.until_running(uid)
        name = stage.name("worker-0")
        stage.cluster.control.print(name, WORDS)
        await until(lambda: collected(stage, uid).count(b"step") == WORDS.count("step"))
    stage.cluster.control.delete("pods", name, grace_seconds=0)
    await until(lambda: not stage.pods())
    record = stage.store.run(uid)
    assert record is not None
    ref = InstanceRef(run=record.ref(), key=InstanceKey("worker", 0))
    chunk = await stage.runtime().read_log(ref, Cursor(), limit=1 << 20)
    assert (chunk.data.decode(), chunk.missing) == (
        WORDS,
        "its pod was gone before its end was read",
    )

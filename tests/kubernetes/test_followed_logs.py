"""Logs that are followed to their end, over connections that break, fall silent or are too few."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

import pytest

from airflow_training.errors import RuntimeUnavailable
from airflow_training.runtimes.kubernetes import collecting, logs, names
from airflow_training.runtimes.kubernetes.api_errors import NotFound
from airflow_training.runtimes.kubernetes.collected import CollectedLog
from airflow_training.runtimes.kubernetes.collecting import PodLog
from airflow_training.runtimes.kubernetes.logs import LogArchive
from airflow_training.runtimes.kubernetes.pod_view import PodView
from airflow_training.runtimes.kubernetes.timestamped_lines import Piece, StampedReader
from airflow_training.runtimes.port import Cursor
from tests.kubernetes.conftest import Stage, resolved
from tests.kubernetes.test_record import FIRST, instance_of
from tests.waiting import PATIENCE, until

LINES = [
    ("00.1", b"one\n"),
    ("00.2", b"two\rtwo and a half\n"),
    ("00.2", b"\n"),
    ("03.000000001", b"three is long " * 9 + b"\n"),
    ("03.5", b"four\n"),
    ("09.7", b"no newline at the end"),
]
WHOLE = b"".join(content for _, content in LINES)


def content(pieces: Iterable[Piece]) -> bytes:
    return b"".join(each for _, each in pieces)


def served(since: str) -> bytes:
    """Return what a kubelet sends from a whole second on."""
    stamps = [(f"2026-01-01T00:00:{at}Z", content) for at, content in LINES]
    return b"".join(
        stamp.encode() + b" " + content for stamp, content in stamps if stamp >= since.rstrip("Z")
    )


@pytest.mark.parametrize("seed", range(30))
def test_whatever_breaks_where_every_byte_comes_once(seed: int):
    dice = random.Random(seed)
    reader, got = StampedReader(), b""
    for breaks in range(dice.randrange(6), -1, -1):
        text = served(reader.reopen())
        end = dice.randrange(len(text) + 1) if breaks else len(text)
        at = 0
        while at < end:
            size = dice.randrange(1, 40)
            got += content(reader.take(text[at : min(at + size, end)]))
            at += size
    assert got == WHOLE


def test_a_line_of_the_other_stream_that_comes_late_is_not_dropped():
    reader = StampedReader()
    text = b"2026-01-01T00:00:03.1Z one\n2026-01-01T00:00:02.9Z late\n2026-01-01T00:00:03.2Z two\n"
    assert content(reader.take(text)) == b"one\nlate\ntwo\n"


def whole(api: Any, name: str, folder: Path) -> PodLog:
    """Return the log of a pod of which nothing was collected."""
    metadata = {
        "name": name,
        "namespace": "default",
        "annotations": {names.CONTAINER: "main"},
        "labels": names.instance_labels(instance_of(FIRST).ref),
    }
    return PodLog(
        api=api,
        pod=PodView.of({"metadata": metadata}),
        collected=CollectedLog(folder / "none.log", most_bytes=0),
        stream=None,
        slots=asyncio.Semaphore(1 << 10),
        follow=True,
    )


async def running(stage: Stage, text: str) -> str:
    """Return the name of a running pod that has printed something."""
    runtime = stage.runtime()
    await runtime.prepare(FIRST, resolved())
    await runtime.create([instance_of(FIRST)])
    await until(lambda: stage.pods()["worker-0"]["status"]["phase"] == "Running")
    name = stage.name("worker-0")
    stage.cluster.control.print(name, text)
    return name


@pytest.mark.parametrize("how", ["cut", "silence"])
async def test_a_log_is_whole_though_its_connection_died(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how
):
    monkeypatch.setattr(logs, "_SILENT_SECONDS", 0.3)
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.05)
    control = stage.cluster.control
    first = "".join(f"step {number}\n" for number in range(40))
    name = await running(stage, first)
    for after_bytes in (500, 0, 30):
        control.break_log(after_bytes=after_bytes, how=how)
    ref = instance_of(FIRST).ref
    archive = LogArchive(str(tmp_path / "archive"), tail_bytes=0)
    api = stage.runtime().log_api
    keeping = asyncio.create_task(archive.keep(ref, whole(api, name, tmp_path)))
    await until(lambda: api.requests["get pods/log"] > 3)
    control.print(name, "the last words\n")
    control.finish(name)
    await asyncio.wait_for(keeping, PATIENCE)
    chunk = await archive.read(ref, Cursor(), limit=1 << 20)
    assert chunk is not None
    assert chunk.data.decode() == first + "the last words\n"


async def test_a_log_whose_end_is_being_written_is_not_in_the_archive_yet(tmp_path: Path):
    archive = LogArchive(str(tmp_path), tail_bytes=0)
    ref = instance_of(FIRST).ref
    folder = tmp_path / ref.run.uid / f"{ref.role}-{ref.index}"
    folder.mkdir(parents=True)
    (folder / "0.0.0.log").write_text("all of it\n")
    for written in ("", '{"start": 0, "si'):
        (folder / "0.0.0.json").write_text(written)
        assert await archive.read(ref, Cursor(), limit=100) is None
    (folder / "0.0.0.json").write_text('{"start": 0, "size": 10}')
    chunk = await archive.read(ref, Cursor(), limit=100)
    assert chunk is not None
    assert chunk.data == b"all of it\n"


async def test_a_server_that_never_lets_us_follow_is_told_in_the_end(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    name = await running(stage, "one\n")
    stage.cluster.control.fail_requests(code=500, times=100, path="/log$")
    api = stage.runtime().log_api
    following = logs.followed(api, "default", name, "main", reader=StampedReader())
    with pytest.raises(RuntimeUnavailable, match="again and again"):
        await anext(following)


class Reading:
    """A log as one process reads it: all of it, or until its pod is gone under its hands."""

    def __init__(self, *, goes_on: asyncio.Event | None = None) -> None:
        self.begun = asyncio.Event()
        self._goes_on = goes_on
        self._opened = False

    async def follow_log(self, *_: Any, **__: Any) -> AsyncIterator[bytes]:
        if self._opened:
            raise NotFound(404, "NotFound", "the pod is gone")
        self._opened = True
        yield b"2026-01-01T00:00:00Z first\n"
        self.begun.set()
        if self._goes_on is not None:
            await self._goes_on.wait()
            raise RuntimeUnavailable("cut")
        yield b"2026-01-01T00:00:01Z second\n"


async def test_who_reads_less_does_not_replace_what_another_process_has_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    ref = instance_of(FIRST).ref
    archive = LogArchive(str(tmp_path), tail_bytes=1 << 20)
    goes_on = asyncio.Event()
    slow, quick = Reading(goes_on=goes_on), Reading()
    keeping = asyncio.create_task(archive.keep(ref, whole(slow, "pod", tmp_path)))
    await slow.begun.wait()
    await archive.keep(ref, whole(quick, "pod", tmp_path))
    goes_on.set()
    await keeping
    chunk = await archive.read(ref, Cursor(), limit=len("first\n"))
    assert chunk is not None
    assert (chunk.data, chunk.end) == (b"first\n", False)


async def test_more_pods_than_logs_that_can_be_read_at_once_lose_no_last_words(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(collecting, "STREAMS", 2)
    monkeypatch.setattr(collecting, "_LAST_STREAMS", 2)
    control = stage.cluster.control
    count = 7
    uid = stage.launch(resolved({"name": "worker", "replicas": count}))
    runtime = stage.runtime()
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        control.behave(".*", stop_seconds=0.4)
        for index in range(count):
            control.print(stage.name(f"worker-{index}"), f"words of {index}\n")
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    archived = [path.read_text() for path in (stage.folder / "logs").rglob("*.log")]
    assert sorted(archived) == [f"words of {index}\n" for index in range(count)]


async def test_the_end_of_a_long_log_is_one_request(stage: Stage, monkeypatch: pytest.MonkeyPatch):
    text = "".join(f"step {number} {'x' * 100}\n" for number in range(20_000))
    await running(stage, text)
    runtime = stage.runtime()
    asked: list[dict[str, Any]] = []
    log = runtime.log_api.log

    async def counted(*names: str, **options: Any) -> bytes:
        asked.append(options)
        return await log(*names, **options)

    monkeypatch.setattr(runtime.log_api, "log", counted)
    ref = instance_of(FIRST).ref
    assert await runtime.tail_log(ref, limit=500) == text.encode()[-500:]
    lines = (await runtime.tail_log(ref, limit=1 << 20)).decode().splitlines()
    assert lines == text.splitlines()[-100:]
    assert [each["tail_lines"] for each in asked] == [100, 100]


async def test_what_was_read_before_a_pod_went_is_kept_and_said_to_be_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.01)
    ref, goes_on = instance_of(FIRST).ref, asyncio.Event()
    goes_on.set()
    for tail_bytes in (0, 1 << 20):
        archive = LogArchive(str(tmp_path / str(tail_bytes)), tail_bytes=tail_bytes)
        await archive.keep(ref, whole(Reading(goes_on=goes_on), "pod", tmp_path))
        chunk = await archive.read(ref, Cursor(), limit=100)
        assert chunk is not None
        assert chunk.data == b"first\n"
        assert "its connection broke (cut)" in chunk.missing
        assert not await archive.has(ref), "who can read all of it may still archive it"

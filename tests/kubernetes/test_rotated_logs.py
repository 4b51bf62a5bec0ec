"""Logs whose files the node rotates while they are read: no line is lost in silence."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path

import pytest

from airflow_training.documents.instances import InstanceKey
from airflow_training.runtimes.kubernetes import collecting, logs
from airflow_training.runtimes.kubernetes.collected import CollectedLog, CollectedRun
from airflow_training.runtimes.kubernetes.timestamped_lines import GAP, Piece, StampedReader
from airflow_training.runtimes.port import Cursor, InstanceRef
from airflow_training.supervise.followers import delayed_logs, log_following
from tests.kubernetes.conftest import Stage, asked_of, resolved
from tests.kubernetes.test_record import FIRST, instance_of
from tests.waiting import PATIENCE, until


def lines(first: int, count: int, *, per_second: int = 3) -> list[tuple[str, bytes]]:
    """Return numbered lines with their time stamps."""
    return [
        (f"2026-01-01T00:00:{n // per_second:02d}.{n % per_second + 1}Z", b"line %d\n" % n)
        for n in range(first, first + count)
    ]


def sent(kept: Iterable[tuple[str, bytes]], since: str) -> bytes:
    return b"".join(b"%b %b" % (at.encode(), text) for at, text in kept if at >= since.rstrip("Z"))


def content(pieces: Iterable[Piece]) -> bytes:
    return b"".join(each for _, each in pieces)


@pytest.mark.parametrize("begins", range(8, 14))
@pytest.mark.parametrize("read", [7, 8, 9, 10])
def test_what_was_rotated_away_between_two_openings_is_said(read, begins):
    """`read`: lines before the break; `begins`: the first line of the file that is there afterwards."""
    reader = StampedReader()
    whole = lines(0, 20)
    assert content(reader.take(sent(whole[:read], ""))).count(b"line") == read
    there = whole[begins:]
    got = content(reader.take(sent(there, reader.reopen())))
    expected = b"".join(text for _, text in whole[max(read, begins) :])
    if begins < read:
        assert got == expected  # the line that was read last is still there
    else:
        said, _, rest = got.partition(b"\n")
        assert said.startswith(GAP.encode())
        assert whole[read - 1][0].encode() in said
        assert rest == expected


def test_a_line_that_was_cut_goes_on_in_the_same_file_and_else_ends():
    reader = StampedReader("2026-01-01T00:00:00.1Z|20|2026-01-01T00:00:00.3Z|4")
    text = b"2026-01-01T00:00:00.3Z line 2\n2026-01-01T00:00:00.4Z next\n"
    assert content(reader.take(text)) == b" 2\nnext\n"
    reader = StampedReader("2026-01-01T00:00:00.1Z|20|2026-01-01T00:00:00.3Z|4")
    got = content(reader.take(b"2026-01-01T00:00:00.4Z next\n"))
    assert got.startswith(b"\n" + GAP.encode())
    assert got.endswith(b"\nnext\n")


@pytest.mark.parametrize("size", [1, 7, 100_000])
def test_a_file_that_the_node_sends_twice_is_taken_once(size: int):
    """As kubelets do that have rotated twice while they sent."""
    old, new, more = lines(0, 9), lines(60, 9), lines(69, 4)
    text = b"".join(sent(each, "") for each in (old, new, new, more))
    reader = StampedReader()
    got = b"".join(content(reader.take(text[at : at + size])) for at in range(0, len(text), size))
    assert got == b"".join(each for _, each in (*old, *new, *more))
    rest = reader.take(sent([*new, *more, *lines(73, 5)], reader.reopen()))
    assert content(rest) == b"".join(each for _, each in lines(73, 5))


@pytest.mark.parametrize("seed", range(20))
def test_a_collected_log_is_read_like_the_servers_own(tmp_path: Path, seed: int):
    dice = random.Random(seed)
    collected = CollectedLog(tmp_path / "pod.log", most_bytes=dice.choice([0, 2000]))
    whole, writer = lines(0, 170), StampedReader()
    for breaks in range(dice.randrange(6), -1, -1):
        writer = collected.reader()  # whoever wrote it died, and another goes on from the file
        text, at = sent(whole, writer.reopen()), 0
        end = dice.randrange(len(text) + 1) if breaks else len(text)
        while at < end:
            size = dice.randrange(1, 400)
            append(collected, writer.take(text[at : min(end, at + size)]))
            at += size
    dropped, blocks = collected.open()
    kept = content(StampedReader().take(b"".join(blocks)))
    expected = b"".join(line for _, line in whole)
    assert dropped + len(kept) == len(expected)
    assert expected.endswith(kept)
    assert collected.reader().token == writer.token


def append(collected: CollectedLog, pieces: Iterable[Piece]) -> None:
    data = b"".join(b"%b %b" % (at.encode(), each) if at else each for at, each in pieces)
    if data:
        collected.append(data)


async def test_a_log_that_is_collected_is_read_to_the_byte_in_any_pieces(tmp_path: Path):
    collected = CollectedLog(tmp_path / "pod.log", most_bytes=0)
    whole = lines(0, 100)
    collected.append(sent(whole, ""))
    cursor, got = Cursor(), b""
    while data := (chunk := await logs.read_live(collected.read, cursor, limit=37)).data:
        got, cursor = got + data, chunk.next
    assert got == b"".join(text for _, text in whole)


def test_only_one_process_appends(tmp_path: Path):
    one, other = CollectedRun(tmp_path, "run"), CollectedRun(tmp_path, "run")
    assert [each.acquire() for each in (one, other)] == [True, False]
    assert other.is_written
    one.release()
    assert [each.acquire() for each in (other, one)] == [True, False]
    other.release()


def test_a_file_that_was_left_out_shows_in_the_time_stamps():
    lag = logs._Lag()
    lag._opened_at = 0.0
    before = "2026-01-01T00:00:01.5Z"
    lag.marked([(before, b"one\n")], now=100.0)
    near, far = "2026-01-01T00:00:03.5Z", "2026-01-01T00:00:15.5Z"
    assert lag.marked([(near, b"two\n")], now=100.1) == [(near, b"two\n")]
    (_, said), line = lag.marked([(far, b"three\n")], now=100.2)
    assert said.startswith(GAP.encode())
    assert line == (far, b"three\n")
    quiet = "2026-01-01T00:00:35.5Z"
    assert lag.marked([(quiet, b"four\n")], now=120.2) == [(quiet, b"four\n")]


@pytest.mark.parametrize(
    ("size", "said"),
    [
        pytest.param(20, False, id="a-few-lines-were-held-up"),
        pytest.param(200_000, True, id="a-flood-went-on-meanwhile"),
    ],
)
def test_lines_that_were_held_up_together_are_no_gap(size: int, said: bool):
    """As this process stood still, or a proxy did: they come at once, though they are far apart."""
    lag = logs._Lag()
    lag._opened_at = lag._came_at = 0.0
    lag.marked([("2026-01-01T00:00:01.5Z", b"one\n")], now=100.0)
    lag.marked([("2026-01-01T00:00:03.5Z", b"x" * size + b"\n")], now=160.0)
    later = lag.marked([("2026-01-01T00:00:33.5Z", b"three\n")], now=160.0)
    assert [GAP.encode() in text for _, text in later] == ([True, False] if said else [False])


def collected_of(stage: Stage) -> bytes:
    (file,) = (stage.folder / "collected").rglob("*.log")
    return content(StampedReader().take(file.read_bytes()))


async def test_the_archive_holds_every_line_whatever_the_node_rotated(stage: Stage):
    control = stage.cluster.control
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        name = stage.name("worker-0")
        control.print(name, "line 0\n")
        await until(lambda: list((stage.folder / "collected").rglob("*.log")))
        for number in range(1, 200):
            control.print(name, f"line {number}\n")
            if number % 20 == 0:
                last = b"line %d\n" % number
                await until(lambda last=last: last in collected_of(stage))  # type: ignore[misc]
                control.rotate_log(name)
        control.finish(name)
        await asyncio.wait_for(task, PATIENCE)
    (archived,) = (stage.folder / "logs").rglob("*.log")
    assert archived.read_text() == "".join(f"line {number}\n" for number in range(200))
    assert not list((stage.folder / "collected").rglob("*.log"))


async def test_whoever_is_killed_while_it_archives_leaves_the_whole_log(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """The pod is gone by then, and what was collected of its log is all there is."""
    control = stage.cluster.control
    uid = stage.launch(resolved())
    record = stage.store.run(uid)
    assert record is not None
    begun, killed = asyncio.Event(), asyncio.Event()

    async def half(_: object, ref: object, blocks: AsyncIterator[bytes], whole: object) -> None:
        async for _block in blocks:
            begun.set()
            await killed.wait()  # it writes no further

    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        name = stage.name("worker-0")
        for number in range(20):
            control.print(name, f"line {number}\n")
        await until(lambda: list((stage.folder / "collected").rglob("*.log")))
        await until(lambda: b"line 19" in collected_of(stage))
        with monkeypatch.context() as patched:
            patched.setattr(logs.LogArchive, "_write", half)
            stage.store.add_request(uid, "stop", reason="enough")
            await asyncio.wait_for(begun.wait(), PATIENCE)
            await until(lambda: not stage.pods())
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
    assert not list((stage.folder / "logs").rglob("*.json"))
    await stage.runtime().remove(record.ref())
    (archived,) = (stage.folder / "logs").rglob("*.log")
    assert archived.read_text() == "".join(f"line {number}\n" for number in range(20))
    assert list((stage.folder / "logs").rglob("*.json"))
    assert not list((stage.folder / "collected").rglob("*.log"))
    killed.set()


async def test_what_was_printed_while_nobody_could_read_is_missing_where_it_is(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(logs, "_PAUSE_SECONDS", 0.05)
    control = stage.cluster.control
    uid = stage.launch(resolved())
    async with stage.driving(uid) as task:
        await stage.until_running(uid)
        name = stage.name("worker-0")
        control.print(name, "line 0\n")
        await until(lambda: list((stage.folder / "collected").rglob("*.log")))
        control.break_log(after_bytes=0, how="cut")
        control.cut_logs()
        control.fail_requests(code=503, times=3, path="/log$")
        control.print(name, "line 1\n")
        control.rotate_log(name)
        control.print(name, "line 2\n")
        await until(lambda: b"line 2" in collected_of(stage))
        control.finish(name)
        await asyncio.wait_for(task, PATIENCE)
    (archived,) = (stage.folder / "logs").rglob("*.log")
    zero, gap, two = archived.read_text().splitlines()
    assert (zero, two) == ("line 0", "line 2")
    assert gap.startswith(GAP)


def test_what_was_printed_before_anybody_read_may_be_missing():
    first = [("2026-01-01T00:10:00.5Z", b"line 70000\n")]
    started, minute = "2026-01-01T00:00:00Z", 60.0
    at = 1767225600.0  # when it started
    ((stamp, said),) = logs.begun_late(started, first, read_since=at + 9 * minute)
    assert stamp == started
    assert said.startswith(GAP.encode())
    assert b"the container started at 2026-01-01T00:00:00Z" in said, "not that a file was begun"
    assert not logs.begun_late(started, first, read_since=at + 2.0)
    assert not logs.begun_late("2026-01-01T00:09:59Z", first, read_since=at + 20 * minute)


async def test_logs_never_hold_a_connection_that_control_needs(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    """Three times as many pods as connections, all with a log that is followed to its end."""
    monkeypatch.setattr(collecting, "STREAMS", 2)
    monkeypatch.setattr(collecting, "_LAST_STREAMS", 1)
    monkeypatch.setattr(collecting, "_TURN_SECONDS", 0.01)
    control, count = stage.cluster.control, 12
    runtime = stage.runtime(connections=3)
    uid = stage.launch(resolved({"name": "worker", "replicas": count}))
    async with stage.driving(uid, runtime=runtime) as task:
        await stage.until_running(uid)
        for index in range(count):
            control.print(stage.name(f"worker-{index}"), f"words of {index}\n")
        await until(lambda: len(list((stage.folder / "collected").rglob("*.log"))) == count)
        stage.store.add_request(uid, "stop", reason="enough")
        await asyncio.wait_for(task, PATIENCE)
    archived = [path.read_text() for path in (stage.folder / "logs").rglob("*.log")]
    assert sorted(archived) == sorted(f"words of {index}\n" for index in range(count))


async def test_a_log_that_is_collected_costs_no_request(stage: Stage):
    control = stage.cluster.control
    uid = stage.launch(resolved())
    runtime = stage.runtime()
    async with stage.driving(uid, runtime=runtime):
        await stage.until_running(uid)
        name = stage.name("worker-0")
        control.print(name, "line 0\n")
        await until(lambda: list((stage.folder / "collected").rglob("*.log")))
        record = stage.store.run(uid)
        assert record is not None
        ref = InstanceRef(run=record.ref(), key=InstanceKey("worker", 0))
        before = asked_of(runtime)
        cursor = Cursor()
        for number in range(20):
            chunk = await runtime.read_log(ref, cursor, limit=1 << 20)
            cursor = chunk.next
            control.print(name, f"line {number + 1}\n")
        assert asked_of(runtime) == before


async def test_a_run_at_rest_costs_no_request_while_its_logs_are_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(delayed_logs, "_AFTER_SECONDS", 0.0)
    monkeypatch.setattr(log_following, "_EVERY_SECONDS", 0.05)
    uid = stage.launch(resolved({"name": "worker", "replicas": 2}))
    runtime = stage.runtime()

    before = Counter[str]()

    def read() -> int:
        return max((int(each.step or 0) for each in stage.store.metrics.series(uid)), default=0)

    def has_read(step: int) -> Callable[[], bool]:
        return lambda: read() == step

    async with stage.driving(uid, runtime=runtime, read_logs=True):
        await stage.until_running(uid)
        for step in range(1, 6):
            for index in (0, 1):
                stage.cluster.control.print(
                    stage.name(f"worker-{index}"), f"step: {step} loss: 0.{step}\n"
                )
            await until(has_read(step), seen=read)
            if step == 2:
                before = asked_of(runtime)
        assert asked_of(runtime) == before


async def test_logs_that_cannot_be_archived_are_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    class Words:
        dropped, cut = 0, ""

        async def blocks(self) -> AsyncIterator[bytes]:
            yield b""
            yield b"words\n"

    (tmp_path / "file").touch()
    archive = logs.LogArchive(str(tmp_path / "file" / "logs"), tail_bytes=0)
    ref = instance_of(FIRST).ref
    for _ in range(19):
        await archive.keep(ref, Words())
    assert [each.levelname for each in caplog.records].count("WARNING") == 1
    (tmp_path / "file").unlink()
    await archive.keep(ref, Words())
    assert caplog.records[-1].getMessage() == "logs are archived again; 19 could not be"


async def test_a_log_that_cannot_be_read_is_asked_for_ever_less_though_its_container_has_ended(
    monkeypatch: pytest.MonkeyPatch,
):
    looks = 0
    running = False

    def runs(uid: str, pods: collecting.Pods) -> bool:
        nonlocal looks
        looks += 1
        return running

    monkeypatch.setattr(collecting, "_runs", runs)
    monkeypatch.setattr(collecting, "_FIRST_PAUSE_SECONDS", 0.01)
    pause = asyncio.ensure_future(collecting._pause(9999, uid="u", pods=list))
    await until(lambda: looks > 3)
    assert not pause.done()
    running = True  # news of it: what could not be read may be there now
    await asyncio.wait_for(pause, PATIENCE)

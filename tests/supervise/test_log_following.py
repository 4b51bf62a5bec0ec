"""Values of running instances come from their logs: all of them, each once, whoever dies."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import os
import random
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from airflow_training.control.model import JobEntry, Ledger, RoleEntry
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.resolved import RunRef
from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.runtimes.port import Cursor, InstanceRef, LogChunk
from airflow_training.state.store import Store
from airflow_training.supervise.followers import log_ends, log_following, log_worker_process
from airflow_training.supervise.followers.log_following import LogFollower
from airflow_training.supervise.followers.log_worker import (
    LogPieceResult,
    PieceOfLog,
    encode_piece,
)
from airflow_training.supervise.followers.log_worker_process import (
    LogWorker,
    WorkerDied,
    worker_of,
)
from tests.builders import entry as an_entry
from tests.rounds import Rounds
from tests.state.samples import a_job, a_key, a_ledger
from tests.waiting import until

NOW = 1_767_225_600.0
KEY = InstanceKey("worker", 0)


def metric_line(step: int) -> bytes:
    at = f"2026-01-01 {step // 3600:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
    return b"%s step: %d loss: %.4f lr: 0.1\n" % (at.encode(), step, 1 / (step + 1))


@dataclass
class Logs:
    """A runtime of which only the logs are asked: attempt -> text and whether it is over."""

    opaque: bool = False
    texts: dict[int, bytes] = field(default_factory=dict)
    over: set[int] = field(default_factory=set)
    reads: int = 0
    tail_bytes: int = 1 << 20
    """How much of its end it tells at most."""

    async def read_log(
        self, instance: InstanceRef, cursor: Cursor, *, limit: int, attempt: int | None = None
    ) -> LogChunk:
        self.reads += 1
        start = int(cursor.token or 0) if self.opaque else cursor.offset
        data = self.texts.get(instance.attempt, b"")[start : start + limit]
        token = str(start + len(data)) if self.opaque else ""
        end = instance.attempt in self.over and not data
        return LogChunk(
            data=data, next=Cursor(offset=cursor.offset + len(data), token=token), end=end
        )

    async def tail_log(self, instance: InstanceRef, *, limit: int) -> bytes:
        return self.texts.get(instance.attempt, b"")[-min(limit, self.tail_bytes) :]


@dataclass
class Scene:
    store: Store
    uid: str
    logs: Logs
    ledger: Ledger
    said: dict[InstanceKey, ProgressReport] = field(default_factory=dict)
    patterns: tuple[ResolvedLogPattern, ...] = ()

    def follower(self) -> LogFollower:
        run = RunRef(uid=self.uid, job="digits", namespace="default", controller="here")
        return LogFollower(
            store=self.store,
            runtime=self.logs,  # type: ignore[arg-type]  # the rest of it is not asked
            run=run,
            patterns=self.patterns,
            ledger=lambda: self.ledger,
            now=lambda: NOW + 100,
            on_progress=self.said.__setitem__,
        )

    def entry(self, **fields) -> None:
        fields = {"was_running": True, "state": "running", "started_at": NOW, **fields}
        entry = an_entry(**fields)
        self.ledger = Ledger(
            job=JobEntry(submitted_at=NOW),
            roles={"worker": RoleEntry(role="worker")},
            instances={KEY: entry},
        )

    def steps(self, name: str = "loss") -> list[int | None]:
        return [each.step for each in self.store.metrics.series(self.uid, name=name)]


@pytest.fixture(params=[False, True], ids=["offsets", "tokens"])
def scene(request, tmp_path: Path):
    store = Store(f"sqlite:///{tmp_path / 'store.db'}")
    record = store.create_run(a_key(), a_job(), a_ledger(), controller="here", queue=False)
    made = Scene(store, record.uid, Logs(opaque=request.param), Ledger())
    made.entry()
    yield made
    store.close()


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Rounds:
    return Rounds(monkeypatch, LogFollower, "_poll")


@contextlib.asynccontextmanager
async def followed(scene: Scene, monkeypatch, *, every: float = 0.02) -> AsyncIterator[LogFollower]:
    monkeypatch.setattr(log_following, "_EVERY_SECONDS", every)
    follower = scene.follower()
    task = asyncio.ensure_future(follower.run())
    try:
        yield follower
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_values_and_progress_reach_the_store_as_they_are_written(scene, monkeypatch):
    scene.logs.texts[0] = b"hello\n" + b"".join(map(metric_line, range(30))) + metric_line(30)[:25]
    async with followed(scene, monkeypatch):
        await until(lambda: scene.steps() == [*range(30)])
        assert scene.store.progress.newest(scene.uid)[KEY].step == 29
        await until(lambda: KEY in scene.said)
        assert scene.said[KEY].step == 29
        scene.logs.texts[0] += metric_line(30)[25:] + metric_line(31)
        await until(lambda: scene.steps() == [*range(32)])
    values = scene.store.metrics.series(scene.uid, name="loss")
    assert [round(each.value, 4) for each in values] == [round(1 / (n + 1), 4) for n in range(32)]
    assert [each.at for each in values] == [NOW + step for step in range(32)]
    worker = worker_of(scene.store)
    assert worker.pid is None, "the worker ends with the last that needs it"


async def test_lines_of_the_jobs_own_formats_give_values_and_progress(scene, monkeypatch):
    line = b"round %d of 90 scored 0.5 points\n"
    scene.logs.texts[0] = b"".join(line % number for number in range(1, 6))
    scene.patterns = (
        ResolvedLogPattern(
            name="rounds",
            line="round {step} of {total_steps} scored {score} points",
            example="round 1 of 90 scored 0.5 points",
        ),
    )
    async with followed(scene, monkeypatch):
        await until(lambda: scene.steps("score") == [1, 2, 3, 4, 5])
    told = scene.store.progress.newest(scene.uid)[KEY]
    assert (told.step, told.total_steps) == (5, 90)


async def test_a_time_that_only_grows_is_never_stored_as_that_of_a_step(scene, monkeypatch):
    def lines(first: int, end: int) -> bytes:
        return b"".join(b"step %d loss 0.5 time %d\n" % (n, 3 * n) for n in range(first, end))

    scene.logs.texts[0] = b""
    async with followed(scene, monkeypatch):
        for first in range(1, 31, 5):
            scene.logs.texts[0] += lines(first, first + 5)
            stored = functools.partial(lambda newest: newest in scene.steps(), first + 4)
            await until(stored)
        await until(lambda: scene.steps("time") == [*range(1, 31)])
    assert scene.steps("step_time_seconds") == []


async def test_few_times_that_grow_are_stored_when_the_attempt_is_over(scene, monkeypatch):
    scene.logs.texts[0] = b"".join(b"step %d loss 0.5 time %d\n" % (n, 60 * n) for n in range(1, 9))
    async with followed(scene, monkeypatch) as follower:
        await until(lambda: scene.steps() == [*range(1, 9)])
        scene.logs.over.add(0)
        await follower.finish()
    assert scene.steps("time") == [*range(1, 9)]


async def test_the_next_attempt_follows_the_end_of_the_one_before(scene, monkeypatch):
    scene.logs.texts[0] = b"".join(map(metric_line, range(10))) + metric_line(10).rstrip(b"\n")
    async with followed(scene, monkeypatch) as follower:
        await until(lambda: scene.steps() == [*range(10)])
        scene.logs.over.add(0)
        scene.logs.texts[1] = b"".join(map(metric_line, range(8, 14)))
        scene.entry(attempt=1)
        await until(lambda: len(scene.steps()) == 17)
        assert sorted(filter(None, scene.steps())) == sorted([*range(1, 11), *range(8, 14)])
        scene.logs.texts[1] += metric_line(14)
        scene.logs.over.add(1)
        await follower.finish()
        assert len(scene.steps()) == 18
    position = scene.store.log_values.positions(scene.uid)[KEY]
    assert (position.attempt, position.ended) == (1, True)


async def test_of_a_flood_at_the_end_the_last_lines_are_read(scene, monkeypatch, caplog):
    monkeypatch.setattr(log_following, "_CHUNK_BYTES", 4096)
    monkeypatch.setattr(log_following, "_CHUNKS_AT_ONCE", 1)
    scene.logs.texts[0] = b"".join(map(metric_line, range(10)))
    async with followed(scene, monkeypatch, every=3600) as follower:
        await until(lambda: scene.steps() == [*range(10)])
        scene.logs.texts[0] += b"".join(map(metric_line, range(10, 5000)))
        scene.logs.over.add(0)
        scene.entry(desired=False, state="failed", finished_at=NOW + 50)
        monkeypatch.setattr(log_following, "_FINISH_SECONDS", 0.0)
        monkeypatch.setattr(log_following, "_END_SECONDS", 3600.0)
        await follower.finish()
    steps = scene.steps()
    assert steps[-1] == 4999
    assert len(steps) == len(set(steps))
    assert scene.store.progress.newest(scene.uid)[KEY].step == 4999
    assert scene.store.log_values.positions(scene.uid)[KEY].ended
    assert "was too much to be read whole" in caplog.text
    assert "was not read in time" not in caplog.text


@pytest.mark.parametrize("scene", [True], indirect=True, ids=["tokens"])
@pytest.mark.parametrize("new", [1, 9, 50])
async def test_lines_of_a_tail_that_are_stored_already_are_not_stored_twice(
    scene, monkeypatch, caplog, new
):
    monkeypatch.setattr(log_ends, "_MOST_CHUNKS", 0)
    scene.logs.tail_bytes = 1500
    scene.logs.texts[0] = b"".join(b"loss %d.5 step %d\n" % (n, n) for n in range(10, 100))
    async with followed(scene, monkeypatch, every=3600) as follower:
        await until(lambda: 99 in scene.steps())
        monkeypatch.setattr(log_following, "_CHUNK_BYTES", 1500)
        scene.logs.texts[0] += b"".join(
            b"loss %d.5 step %d\n" % (n, n) for n in range(100, 100 + new)
        )
        scene.logs.over.add(0)
        scene.entry(desired=False, state="failed", finished_at=NOW + 50)
        monkeypatch.setattr(log_following, "_FINISH_SECONDS", 0.0)
        monkeypatch.setattr(log_following, "_END_SECONDS", 3600.0)
        await follower.finish()
    assert scene.steps() == [*range(10, 100 + new)]
    assert "was too much to be read whole" not in caplog.text


async def test_a_worker_that_dies_of_one_end_reads_the_others(scene, monkeypatch, caplog):
    scene.logs.texts[0] = metric_line(0)
    async with followed(scene, monkeypatch, every=3600) as follower:
        await until(lambda: scene.steps() == [0])
        scene.logs.texts[0] += metric_line(1)
        scene.logs.over.add(0)
        first = InstanceKey("evaluator", 0)
        ended: dict[str, Any] = {"desired": False, "state": "failed", "finished_at": NOW + 50}
        scene.entry(**ended)
        other = an_entry(*first, was_running=True, started_at=NOW, **ended)
        instances = {first: other, **scene.ledger.instances}
        scene.ledger = dataclasses.replace(scene.ledger, instances=instances)
        scan = LogWorker.scan

        async def dying(worker: LogWorker, piece: PieceOfLog, text: bytes) -> LogPieceResult:
            if piece.key == first:
                raise WorkerDied("the log worker died: EOFError", killed=False)
            return await scan(worker, piece, text)

        monkeypatch.setattr(LogWorker, "scan", dying)
        monkeypatch.setattr(log_following, "_FINISH_SECONDS", 0.0)
        monkeypatch.setattr(log_following, "_END_SECONDS", 3600.0)
        await follower.finish()
    assert 1 in scene.steps()
    assert "no values of the end of the log of evaluator-0" in caplog.text


async def test_what_is_left_at_the_end_is_read_whole_where_there_is_time(
    scene, monkeypatch, caplog
):
    monkeypatch.setattr(log_following, "_CHUNK_BYTES", 4096)
    monkeypatch.setattr(log_following, "_CHUNKS_AT_ONCE", 1)
    monkeypatch.setattr(log_following, "_FINISH_SECONDS", 3600.0)
    scene.logs.texts[0] = b"".join(map(metric_line, range(10)))
    async with followed(scene, monkeypatch, every=3600) as follower:
        await until(lambda: scene.steps() == [*range(10)])
        scene.logs.texts[0] += b"".join(map(metric_line, range(10, 500)))
        scene.logs.over.add(0)
        scene.entry(desired=False, state="failed", finished_at=NOW + 50)
        await follower.finish()
    assert scene.steps() == [*range(500)]
    assert not caplog.records


@pytest.mark.parametrize("scene", [True], indirect=True, ids=["tokens"])
@pytest.mark.parametrize(
    "kills", [pytest.param(12, id="sample"), pytest.param(50, id="all", marks=pytest.mark.soak)]
)
async def test_a_worker_killed_many_times_leaves_no_gap_and_no_duplicate(
    scene, looks, monkeypatch, kills
):
    monkeypatch.setattr(log_following, "_CHUNK_BYTES", 700)
    monkeypatch.setattr(log_following, "_CHUNKS_AT_ONCE", 3)
    dice = random.Random(3)
    worker = worker_of(scene.store)
    killed, written = 0, 0
    while killed < kills:
        # every few kills the whole host dies, too: its follower is forgotten
        async with followed(scene, monkeypatch, every=0.005):
            for _ in range(7):
                scene.logs.texts[0] = scene.logs.texts.get(0, b"") + b"".join(
                    map(metric_line, range(written, written + 20))
                )
                written += 20
                await until(lambda: worker.pid is not None)
                await asyncio.sleep(dice.random() * 0.6)
                if worker.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(worker.pid, signal.SIGKILL)
                        killed += 1
    async with followed(scene, monkeypatch):
        await until(lambda: len(scene.steps()) >= written)
        await until(looks.more())
    assert scene.steps() == [*range(written)]


async def test_two_holders_at_once_store_everything_once(scene, monkeypatch):
    async with followed(scene, monkeypatch), followed(scene, monkeypatch):
        for begin in range(0, 200, 10):
            scene.logs.texts[0] = scene.logs.texts.get(0, b"") + b"".join(
                map(metric_line, range(begin, begin + 10))
            )
            await asyncio.sleep(0.02)
        await until(lambda: len(scene.steps()) >= 200)
    assert scene.steps() == [*range(200)]


async def test_what_a_script_reports_itself_wins(scene, monkeypatch):
    scene.store.progress.save(
        scene.uid, {KEY: ProgressReport(step=7, total_steps=9, metrics={"loss": 0.5}, time=NOW)}
    )
    scene.logs.texts[0] = b"".join(map(metric_line, range(30)))
    async with followed(scene, monkeypatch):
        await until(lambda: len(scene.steps("learning_rate")) == 30)
    assert scene.store.progress.newest(scene.uid)[KEY].step == 7
    assert [each.value for each in scene.store.metrics.series(scene.uid, name="loss")] == [0.5]


@pytest.mark.parametrize("why", ["silent", "reports", "young"])
async def test_who_needs_no_worker_starts_none(scene, looks, monkeypatch, why):
    if why != "silent":
        scene.logs.texts[0] = b"".join(map(metric_line, range(30)))
    if why == "young":
        scene.entry(started_at=NOW + 97, finished_at=NOW + 99)
    async with followed(scene, monkeypatch) as follower:
        if why == "reports":
            follower.reported({KEY: ProgressReport(step=1, metrics={"loss": 0.5})})
        await until(looks.more())
        assert worker_of(scene.store).pid is None
    assert scene.steps() == []


@pytest.mark.parametrize(
    "scene",
    [pytest.param(False, id="offsets", marks=pytest.mark.soak), pytest.param(True, id="tokens")],
    indirect=True,
)
async def test_a_piece_that_the_worker_dies_of_is_left_out(scene, monkeypatch, caplog):
    scene.logs.texts[0] = b"".join(map(metric_line, range(5)))
    async with followed(scene, monkeypatch):
        await until(lambda: len(scene.steps()) == 5)

        def poisoned(piece, text):
            return b"no json\n" if b"poison" in text else encode_piece(piece, text)

        monkeypatch.setattr(log_worker_process, "encode_piece", poisoned)
        scene.logs.texts[0] += b"poison\n" + metric_line(5)
        await until(lambda: "is left out" in caplog.text)
        monkeypatch.setattr(log_worker_process, "encode_piece", encode_piece)
        scene.logs.texts[0] += metric_line(6)
        await until(lambda: 6 in scene.steps())
    assert scene.steps() == [0, 1, 2, 3, 4, 6]

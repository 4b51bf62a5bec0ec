"""What the log of a role's task says of the training while it runs."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.errors import RuntimeUnavailable
from airflow_training.triggers import live_log
from airflow_training.triggers.live_log import (
    LiveLog,
    fresh_lines,
    lines_of,
    pauses,
    progress_line,
)
from airflow_training.triggers.reconcile import ReconcileTrigger
from tests.airflow.triggers.scenes import Running, Scene, started
from tests.builders import job, role
from tests.waiting import PATIENCE, until


@pytest.mark.parametrize(
    ("roles", "moments"),
    [
        (1, [10, 20, 40, 80, 160, 320, 620, 920]),
        (10, [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 4360]),
    ],
)
def test_a_look_is_rare_once_the_training_is_under_way(roles: int, moments: list[float]):
    waits = itertools.islice(pauses(roles=roles), len(moments))
    assert list(itertools.accumulate(waits)) == moments


@pytest.mark.parametrize(
    ("tail", "lines"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"one\ntwo\n", ["one", "two"], id="lines"),
        pytest.param(b"one\ntw", ["one"], id="a-line-that-is-being-written"),
        pytest.param(b"one\r\n\n  \ntwo\n", ["one", "two"], id="blank-lines"),
        pytest.param(b"10%\r50%\r90%\n", ["90%"], id="a-progress-bar"),
        pytest.param(b"\x1b[31mred\x1b[0m \x07\n", [r"red \u0007"], id="colours-and-bells"),
        pytest.param(b"caf\xc3\xa9 \xff\n", ["café \ufffd"], id="no-utf-8"),
        pytest.param(b"x" * 300 + b"\n", ["x" * 199 + "…"], id="a-long-line"),
        pytest.param(
            b"".join(b"%d\n" % n for n in range(90)), [str(n) for n in range(70, 90)], id="many"
        ),
    ],
)
def test_the_end_of_a_log_becomes_lines_that_fit(tail: bytes, lines: list[str]):
    assert lines_of(tail) == lines


def test_a_line_whose_beginning_was_not_read_is_left_out():
    assert lines_of(b"eginning\nwhole\n", limit=15) == ["whole"]
    assert lines_of(b"beginning\nwhole\n", limit=17) == ["beginning", "whole"]


@pytest.mark.parametrize(
    ("before", "now", "fresh"),
    [
        pytest.param("", "abc", "abc", id="first"),
        pytest.param("abc", "abc", "", id="nothing-new"),
        pytest.param("abc", "abcde", "de", id="more"),
        pytest.param("abc", "cde", "de", id="the-window-moved"),
        pytest.param("abc", "xyz", "xyz", id="more-than-fits"),
        pytest.param("aab", "abab", "ab", id="what-comes-again"),
        pytest.param("abc", "", "", id="gone"),
    ],
)
def test_only_new_lines_are_told(before: str, now: str, fresh: str):
    assert list(fresh_lines(list(before), list(now))) == list(fresh)


@pytest.mark.parametrize(
    ("progress", "metrics", "line"),
    [
        pytest.param({}, {}, "", id="nobody-reports"),
        pytest.param(
            {0: ProgressReport(step=300, total_steps=900), 3: ProgressReport(step=280)},
            {"loss": 0.31234, "samples_per_second": 1250.4},
            "progress: worker-0 step 300 of 900, loss 0.3123, 1,250 samples/s;"
            " 2 of 4 instances report; slowest worker-3 at 280",
            id="several",
        ),
        pytest.param(
            {1: ProgressReport(step=3), 2: ProgressReport(step=3)},
            {},
            "progress: worker-1 step 3; 2 of 4 instances report",
            id="all-at-the-same-step",
        ),
        pytest.param(
            {0: ProgressReport(epoch=1.5)},
            {"a\x1b[2J": 1.0, "b": 2.0, "c": 3.0, "d": 4.0},
            r"progress: worker-0 epoch 1.5, a\u001b[2J 1, b 2, c 3; 1 of 4 instances report",
            id="names-that-scripts-choose",
        ),
        pytest.param(
            {0: ProgressReport()}, {}, "progress: worker-0; 1 of 4 instances report", id="no-place"
        ),
    ],
)
def test_progress_is_one_line(progress: Any, metrics: Any, line: str):
    assert progress_line("worker", progress, metrics=metrics, instances=4) == line


def test_an_instance_alone_is_not_counted():
    assert (
        progress_line("worker", {0: ProgressReport(step=1)}, metrics={}, instances=1)
        == "progress: worker-0 step 1"
    )


class Tails:
    """A runtime of which only the end of a log is asked."""

    def __init__(self, *tails: bytes | Exception) -> None:
        self._tails = iter(tails)
        self.asked = 0

    async def tail_log(self, instance: Any, *, limit: int) -> bytes:
        self.asked += 1
        assert instance.key == ("worker", 0)
        tail = next(self._tails)
        if isinstance(tail, Exception):
            raise tail
        assert len(tail) <= limit
        return tail


@pytest.fixture
async def running(scene: Scene, role_task: Any) -> Any:
    """Give a scene in which two workers run."""
    scene.behave(run_seconds=None)
    scene.launch(job(role("worker", 2), runtime="memory"))
    role_task()
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    await until(lambda: scene.ledger.roles["worker"].state == "Running", "they run")
    yield scene
    await reconciling.cancel(by_user=False)


def listening(scene: Scene, told: list[str]) -> LiveLog:
    return LiveLog(
        scene.store, scene.uid, role="worker", tell=lambda level, text: told.append(text)
    )


async def test_each_line_is_told_once(running: Scene, monkeypatch: pytest.MonkeyPatch):
    runtime = Tails(b"one\ntwo\n", b"one\ntwo\n", b"one\ntwo\nthree\n")
    monkeypatch.setattr(live_log, "runtime_of", lambda job: runtime)
    told: list[str] = []
    live = listening(running, told)
    heard: list[Sequence[str]] = []
    for _ in range(3):
        await live.log_lines(live.state())
        heard.append([*told])
        told.clear()
    assert heard == [["worker-0 | one", "worker-0 | two"], [], ["worker-0 | three"]]


async def test_progress_is_told_when_it_has_changed(running: Scene):
    told: list[str] = []
    live = listening(running, told)
    await live.log_progress(live.state())
    line = ProgressReport(step=30, total_steps=90, metrics={"loss": 0.5})
    running.store.progress.save(
        running.uid,
        {InstanceKey("worker", 0): line, InstanceKey("gone", 0): ProgressReport(step=1)},
    )
    await live.log_progress(live.state())
    await live.log_progress(live.state())
    running.store.progress.save(running.uid, {InstanceKey("worker", 1): ProgressReport(step=20)})
    await live.log_progress(live.state())
    first = "progress: worker-0 step 30 of 90, loss 0.5"
    assert told == [
        f"{first}; 1 of 2 instances report",
        f"{first}; 2 of 2 instances report; slowest worker-1 at 20",
    ]


async def test_of_a_role_that_does_not_run_no_log_is_read(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
):
    scene.launch(job(role("worker"), runtime="memory"))
    runtime = Tails()
    monkeypatch.setattr(live_log, "runtime_of", lambda job: runtime)
    live = listening(scene, [])
    await live.log_lines(live.state())
    assert runtime.asked == 0


async def test_a_role_task_tells_what_its_training_prints(
    scene: Scene,
    role_task: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.setattr(live_log, "_FIRST_SECONDS", 0.01)
    scene.behave(run_seconds=None)
    scene.launch(job(role("worker"), runtime="memory"))
    following = role_task()
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    told = ""

    def tells() -> bool:
        nonlocal told
        told += capsys.readouterr().out
        return "worker-0 | " in told and "running" in told.rpartition("worker-0 | ")[2]

    await until(tells, "it is told")
    assert not following.task.done()
    await following.cancel(by_user=False)
    here = asyncio.current_task()
    await reconciling.cancel(by_user=False)
    assert not [each for each in asyncio.all_tasks() - {here} if "_follow" in repr(each.get_coro())]


class StuckRuntime:
    """Answers nothing about logs."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error
        self.asked = asyncio.Event()

    async def tail_log(self, instance: Any, *, limit: int) -> bytes:
        self.asked.set()
        if self._error is not None:
            raise self._error
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


@pytest.mark.parametrize(
    "error",
    [None, RuntimeUnavailable("away"), AttributeError("tail_log"), OSError("disk")],
    ids=lambda error: type(error).__name__,
)
async def test_a_log_that_cannot_be_read_neither_fails_nor_delays_the_task(
    scene: Scene,
    role_task: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception | None,
):
    monkeypatch.setattr(live_log, "pauses", lambda roles: itertools.repeat(0.01))
    runtime = StuckRuntime(error)
    monkeypatch.setattr(live_log, "runtime_of", lambda job: runtime)
    scene.behave(run_seconds=1.0)
    scene.launch(job(role("worker"), runtime="memory"))
    following = role_task()
    reconciling = Running(started(ReconcileTrigger(), "reconcile"))
    await asyncio.wait({following.task}, timeout=PATIENCE)
    (event,) = following.task.result()
    assert type(event).__name__ == "TaskSuccessEvent"
    assert runtime.asked.is_set()
    assert not [each for each in caplog.records if each.levelno >= 30 and "live_log" in each.name]
    await reconciling.cancel(by_user=False)

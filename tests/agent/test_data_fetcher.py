"""Who fetches data beside a command: heard whatever else it prints, started again, gone with the command."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training.agent import proc
from airflow_training.agent.data_fetcher import PROGRAM_FOLDER, DataFetcher
from airflow_training.agent.loop import Loop

pytestmark = pytest.mark.e2e

FETCHES = """
import json, sys
print("welcome to this image")
print("[1, 2]")
print(json.dumps({"variables": {"TRAINING_DATA_SOCKET": "/s"}}), flush=True)
sys.stdin.readline()
print("bye", flush=True)
print(json.dumps({"failure": ["DataSourceChanged", "a.bin"]}), flush=True)
"""


@pytest.fixture
def loop() -> Iterator[Loop]:
    handler = signal.getsignal(signal.SIGCHLD)
    loop = Loop((), signalled=lambda number: None)
    yield loop
    loop.close()
    signal.signal(signal.SIGCHLD, handler)


@pytest.fixture
def said() -> list[str]:
    """What the agent says in its log."""
    return []


def fetcher(loop: Loop, folder: Path, said: list[str], program: str) -> DataFetcher:
    package = folder / "code" / PROGRAM_FOLDER / "airflow_training" / "remote_data"
    package.mkdir(parents=True)
    for each in (package, package.parent):
        (each / "__init__.py").touch()
    (package / "beside_command.py").write_text(program)
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return DataFetcher(
        folder / "code",
        python=sys.executable,
        state=folder / "state",
        loop=loop,
        environment={"PATH": os.defpath},
        log=log,
        say=said.append,
    )


def test_what_an_image_prints_is_no_answer(loop, tmp_path, said):
    found = fetcher(loop, tmp_path, said, FETCHES)
    answers: list[tuple[str, str]] = []
    found.start(lambda *answer: answers.append(answer))
    while not answers:
        loop.turn()
    assert answers == [("", "")]
    assert found.variables == {"TRAINING_DATA_SOCKET": "/s"}
    ended: list[object] = []
    found.end(ended.append)
    while not ended:
        loop.turn()
    assert ended == [("DataSourceChanged", "a.bin")]
    while found.processes():
        loop.turn()


def test_one_that_cannot_start_says_so(loop, tmp_path, said):
    found = fetcher(loop, tmp_path, said, "raise SystemExit(3)")
    answers: list[tuple[str, str]] = []
    found.start(lambda *answer: answers.append(answer))
    while not answers:
        loop.turn()
    [(reason, message)] = answers
    assert reason == "DataError"
    assert "did not start" in message


def test_one_that_is_killed_is_started_again_and_none_is_left(loop, tmp_path, said):
    found = fetcher(loop, tmp_path, said, FETCHES)
    answers: list[object] = []
    found.start(lambda *answer: answers.append(answer))
    while not answers:
        loop.turn()
    [first] = found.processes()
    os.kill(first, signal.SIGKILL)
    while not said:
        loop.turn()
    [second] = found.processes()
    assert second != first
    found.close()
    while found.processes():
        loop.turn()
    assert not proc.descendants(os.getpid())

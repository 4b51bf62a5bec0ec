"""Who fetches data on demand is asked in a child: what does not answer holds up neither signals nor the end."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training.agent.fetched_data import ask_data_failure
from airflow_training.agent.loop import Loop

pytestmark = pytest.mark.e2e


@pytest.fixture
def heard() -> list[int]:
    """Signals that the loop was given."""
    return []


@pytest.fixture
def loop(heard: list[int]) -> Iterator[Loop]:
    handlers = {each: signal.getsignal(each) for each in (signal.SIGCHLD, signal.SIGUSR1)}
    loop = Loop((signal.SIGUSR1,), signalled=heard.append)
    yield loop
    loop.close()
    for number, handler in handlers.items():
        signal.signal(number, handler)


def listening(path: Path, answer: dict[str, str] | None) -> socket.socket:
    """Somebody at a socket who gives one answer, or none at all."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen()

    def serve() -> None:
        while answer is not None:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                connection.recv(1000)
                connection.sendall(json.dumps(answer).encode() + b"\n")

    threading.Thread(target=serve, daemon=True).start()
    return server


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        ({"ready": True}, None),
        ({"error": "UnfetchedDataRead", "message": "/data/a"}, ("UnfetchedDataRead", "/data/a")),
    ],
)
def test_it_hears_what_was_not_there(loop, tmp_path, answer, found):
    told: list[object] = []
    with listening(tmp_path / "s", answer):
        ask_data_failure(loop, {"TRAINING_DATA_SOCKET": str(tmp_path / "s")}, then=told.append)
        assert told == [], "it goes on meanwhile"
        while not told:
            loop.turn()
    assert told == [found]


def test_a_command_without_data_asks_nobody(loop):
    told: list[object] = []
    ask_data_failure(loop, {}, then=told.append)
    assert told == [None]


def test_signals_count_while_nobody_answers(loop, heard, tmp_path):
    told: list[object] = []
    with listening(tmp_path / "s", None):
        ask_data_failure(loop, {"TRAINING_DATA_SOCKET": str(tmp_path / "s")}, then=told.append)
        os.kill(os.getpid(), signal.SIGUSR1)
        while not heard:
            loop.turn()
        assert told == [], "it was heard before who fetches has said anything"
    while not told:
        loop.turn()
    assert told == [None]

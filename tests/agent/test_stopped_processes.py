"""When a command counts as stopped by a signal; the processes are real, the clock is an argument."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator

import pytest

from airflow_training.agent import proc
from airflow_training.agent.stopped_processes import StoppedWatch
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e


@pytest.fixture
def two() -> Iterator[tuple[int, int]]:
    """Return the pids of two processes, of which the first is stopped."""
    started = [subprocess.Popen(["sleep", "3600"]) for _ in range(2)]
    try:
        os.kill(started[0].pid, signal.SIGSTOP)
        wait_until(lambda: proc.is_stopped(started[0].pid))
        yield started[0].pid, started[1].pid
    finally:
        for each in started:
            each.kill()
            each.wait()


def test_all_of_it_has_to_be_stopped_for_longer_than_is_allowed(two):
    command, child = two
    watch = StoppedWatch({"stallSeconds": 60})
    assert watch.ends
    texts = [watch.poll(command, lambda: [command, child], now=5.0 * n) for n in range(30)]
    assert not any(texts)
    texts = [watch.poll(command, lambda: [command], now=150.0 + 5 * n) for n in range(14)]
    assert not any(texts[:12])
    assert texts[-1] == "a signal has stopped it (state T, as SIGSTOP does) for 70 s"


def test_what_goes_on_begins_anew(two):
    command, _ = two
    watch = StoppedWatch(None)
    assert not watch.ends
    texts = [watch.poll(command, lambda: [command], now=5.0 * n) for n in range(8)]
    assert texts[-1]
    os.kill(command, signal.SIGCONT)
    wait_until(lambda: not proc.is_stopped(command))
    assert watch.poll(command, lambda: [command], now=40.0) == ""

"""When a command counts as stopped by a signal; the processes are real, the clock is an argument."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from airflow_training.agent import proc
from airflow_training.agent.stopped_processes import StoppedWatch, stopped_now
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

BUSY = (sys.executable, "-c", "while True: pass")
SHORT = "import time\nwhile time.process_time() < 0.5: pass"
WAITS_FOR_CHILDREN = f"""
import subprocess, sys, time
while True:
    subprocess.run([sys.executable, "-c", {SHORT!r}])
"""


@pytest.fixture
def started() -> Iterator[Callable[..., int]]:
    """Return a function that starts a process, as a rule an idle one, and returns its pid."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> int:
        processes.append(subprocess.Popen(words or ("sleep", "3600")))
        return processes[-1].pid

    yield start
    for each in processes:
        each.kill()
        each.wait()


def stop(pid: int) -> int:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: proc.is_stopped(pid))
    return pid


def tree(*pids: int) -> Callable[[], dict[int, int]]:
    return lambda: {pid: proc.start_time(pid) or 0 for pid in pids}


def test_it_has_to_be_stopped_for_longer_than_is_allowed(started):
    command, alive = stop(started()), started()
    watch = StoppedWatch({"stallSeconds": 60})
    assert not any(watch.poll(alive, tree(alive), now=5.0 * n) for n in range(30))
    texts = [watch.poll(command, tree(command), now=150.0 + 5 * n) for n in range(14)]
    assert not any(texts[:12])
    assert texts[-1] == "a signal has stopped it (state T, as SIGSTOP does) for 70 s"
    assert watch.ends


def test_a_wrapper_that_sleeps_above_a_stopped_child_hangs_with_it(started):
    wrapper, child = started(), stop(started())
    watch = StoppedWatch({"stallSeconds": 60})
    texts = [watch.poll(wrapper, tree(wrapper, child), now=5.0 * n) for n in range(14)]
    assert texts[-1] == (
        f"a signal has stopped {child} (sleep) (state T, as SIGSTOP does) for 65 s"
    )
    assert watch.ends


def test_what_is_stopped_is_named_also_where_silence_is_what_ends_it(started):
    command, child = started(), started()
    assert stopped_now(command, tree(command, child)) == ""
    stop(child)
    named = f"a signal has stopped {child} (sleep) (state T, as SIGSTOP does)"
    assert stopped_now(command, tree(command, child)) == named


def test_a_stopped_process_beside_one_that_works_is_told_and_ends_nothing(started):
    command, child = started(*BUSY), stop(started())
    watch = StoppedWatch({"stallSeconds": 1})
    assert not watch.poll(command, tree(command, child), now=0.0)
    before = proc.cpu_seconds(command)
    assert not watch.poll(command, tree(command, child), now=0.5)
    wait_until(lambda: proc.cpu_seconds(command) >= before + 0.5)
    texts = [watch.poll(command, tree(command, child), now=1.0 + n / 2) for n in range(3)]
    assert texts[-1]
    assert not watch.ends


def test_children_that_have_ended_worked_too(started):
    command, child = started(sys.executable, "-c", WAITS_FOR_CHILDREN), stop(started())
    watch = StoppedWatch({"stallSeconds": 1})
    before = proc.cpu_seconds(command)
    assert not watch.poll(command, tree(command, child), now=0.0)
    assert not watch.poll(command, tree(command, child), now=0.5)
    wait_until(lambda: proc.cpu_seconds(command) >= before + 0.5)
    assert watch.poll(command, tree(command, child), now=2.0)
    assert not watch.ends


def test_a_stopped_process_beside_one_that_only_waits_but_reports_ends_nothing(started):
    """It waits for its data: silence alone tells whether it hangs."""
    command, child = started(), stop(started())
    watch = StoppedWatch({"stallSeconds": 60})
    texts = [
        watch.poll(command, tree(command, child), reported=100 + (n > 3), now=5.0 * n)
        for n in range(20)
    ]
    assert texts[-1]
    assert not watch.ends
    # what it reported before the stop counts for nothing
    silent = StoppedWatch({"stallSeconds": 60})
    assert [
        silent.poll(command, tree(command, child), reported=100, now=5.0 * n) for n in range(20)
    ][-1]
    assert silent.ends


@pytest.mark.parametrize(("seconds", "every"), [(1, 2.0), (30, 7.5), (600, 10.0)])
def test_it_is_not_looked_at_all_the_time(seconds, every):
    """Each look lists all processes of the machine."""
    assert StoppedWatch({"stallSeconds": seconds}).every_seconds == every


def test_what_goes_on_begins_anew(started):
    command = stop(started())
    watch = StoppedWatch(None)
    texts = [watch.poll(command, tree(command), now=5.0 * n) for n in range(8)]
    assert texts[-1]
    assert not watch.ends
    os.kill(command, signal.SIGCONT)
    wait_until(lambda: not proc.is_stopped(command))
    assert watch.poll(command, tree(command), now=40.0) == ""

"""Whose processes are leftovers of a run: those of folders that are gone, and nothing that is about to start."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from airflow_training.agent import proc
from airflow_training.agent.files import write_json
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local.leftovers import end_strays, find_strays
from tests.waiting import wait_until

# an agent whose child has gone to the folder of its command, and is not yet that command
AGENT = """
import os, sys, time
os.chdir(sys.argv[2])
if os.fork() == 0:
    os.chdir("/")
os.write(1, b"stands\\n")  # in one piece: both write to the same pipe
time.sleep(3600)
"""


@contextlib.contextmanager
def an_agent(run: RunFolder) -> Iterator[int]:
    attempt = run.attempt("worker", 0, (0, 0, 0))
    attempt.control.mkdir(parents=True)
    write_json(attempt.spec, {"uid": "one"})
    program = run.path.with_name("agent.pyz")
    program.write_text(AGENT)
    words = [sys.executable, str(program), "start", str(attempt.control)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == ["stands\n"] * 2
            yield process.pid
        finally:
            for pid, start in proc.descendants(process.pid).items():
                proc.kill_exactly(pid, start, 9)
            process.kill()


def test_a_command_that_is_about_to_start_is_no_leftover(tmp_path: Path):
    run = RunFolder(tmp_path, "u")
    with an_agent(run):
        assert find_strays(run) == []


def test_an_agent_whose_folder_is_gone_is_ended_with_its_children(tmp_path: Path):
    run = RunFolder(tmp_path, "u")
    with an_agent(run) as pid:
        children = proc.descendants(pid)
        assert len(children) == 1
        run.path.rename(tmp_path / "elsewhere")
        assert [each.pid for each in find_strays(run)] == [pid]
        assert end_strays(run) == []
        wait_until(
            lambda: all(proc.start_time(each) != start for each, start in children.items()),
            "the child of the agent is gone",
        )


def test_a_process_that_wrote_its_title_over_its_mark_is_of_the_attempt_in_whose_folder_it_is(
    tmp_path: Path,
):
    run = RunFolder(tmp_path, "u")
    attempt = run.attempt("worker", 0, (0, 0, 0))
    attempt.control.mkdir(parents=True)
    write_json(attempt.spec, {"uid": "one"})
    place = {"TRAINING_INSTANCE_DIR": str(attempt.path)}
    marks: list[dict[str, str]] = [
        {},
        {"TRAINING_INSTANCE_UID": "one"},
        {"TRAINING_INSTANCE_UID": "another"},
    ]
    with contextlib.ExitStack() as stack:
        pids = []
        for mark in marks:
            process = stack.enter_context(subprocess.Popen(["sleep", "3600"], env=place | mark))
            stack.callback(process.kill)
            pids.append(process.pid)
        assert [each.pid for each in find_strays(run)] == pids[2:]

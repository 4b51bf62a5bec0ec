"""Ctrl-C at any moment of the start, which is mostly imports: a word and an exit code, never a traceback."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import job_file
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

# The signal comes at the n-th import after that of the commands: a moment that no load can move.
_INTERRUPTED = """
import os, signal, sys

left = -1

def count(event, arguments):
    global left
    if event != "import":
        return
    if arguments[0] == "airflow_training.cli.main":
        left = int(os.environ["INTERRUPT_AT"])
    elif left >= 0:
        left -= 1
        if left == -1:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
sys.addaudithook(count)
from airflow_training.cli.__main__ import main
sys.argv[0] = "airflow-training"
main()
"""
MOST_IMPORTS = 300
MOMENTS = random.Random(13).sample(range(MOST_IMPORTS), 6)


def interrupted(*words: str, at: int) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, *words],
        env={**os.environ, "INTERRUPT_AT": str(at)},
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )


@pytest.mark.parametrize("at", [0, *MOMENTS])
@pytest.mark.parametrize("command", ["validate", "run"])
def test_ctrl_c_while_a_command_is_imported_is_clean(home, command, at):
    path = job_file(Path("job.yaml"), command=["sleep", "600"])
    done = interrupted(command, str(path), at=at)
    assert "Traceback" not in done.stderr
    assert done.returncode in (1, 2), done.stderr
    assert "nterrupted" in done.stderr or "Aborted" in done.stderr
    assert done.stdout == ""
    assert not list(home.glob("training/*")), "something was started"

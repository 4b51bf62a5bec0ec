"""Ctrl-C at any moment of the start, which is mostly imports: a word and an exit code, never a traceback."""

from __future__ import annotations

import os
import random
import signal
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

# The signal comes when a function returns: a moment that no load can move.
_INTERRUPTED_AFTER = """
import importlib, os, signal, sys

signal.signal(signal.SIGINT, signal.default_int_handler)
module, name = os.environ["INTERRUPT_AFTER"].split(":")
where = importlib.import_module(module)
call = getattr(where, name)

def interrupt(*args, **kwargs):
    done = call(*args, **kwargs)
    os.kill(os.getpid(), int(os.environ["INTERRUPT_BY"]))
    return done

setattr(where, name, interrupt)
from airflow_training.cli.__main__ import main
sys.argv[0] = "airflow-training"
main()
"""
# The same at the end of `launch`, with a store that then says nothing of leases.
_SILENT_STORE = """
import os, time
from airflow_training.cli import hosting
from airflow_training.errors import RuntimeUnavailable
from airflow_training.state.store import Store

def refuse(*args, **kwargs):
    raise RuntimeUnavailable("the store does not answer")

def hang(*args, **kwargs):
    time.sleep(1)
    refuse()

hosting._ANSWER_SECONDS = 0.1
Store.acquire = refuse
Store.lease = {"refuses": refuse, "hangs": hang}[os.environ["STORE"]]
"""
MOST_IMPORTS = 300
MOMENTS = random.Random(13).sample(range(MOST_IMPORTS), 6)


def interrupted(*words: str, at: int) -> subprocess.CompletedProcess[str]:
    return python(_INTERRUPTED, *words, INTERRUPT_AT=str(at))


def python(script: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script, *words],
        env={**os.environ, **environment},
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


@pytest.mark.parametrize("command", ["validate", "run"])
def test_ctrl_c_while_a_job_is_checked_is_clean(home, command):
    path = job_file(Path("job.yaml"), command=["sleep", "600"])
    where = "airflow_training.admission.check:check_text"
    done = python(_INTERRUPTED_AFTER, command, str(path), INTERRUPT_AFTER=where, INTERRUPT_BY="2")
    assert done.returncode in (1, 2)
    assert "nterrupted" in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(home.glob("training/*")), "something was started"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    "where",
    [
        pytest.param("airflow_training.admission.launch:launch", id="stored"),
        pytest.param("airflow_training.supervise.owners:new_owner", id="before-the-lease"),
    ],
)
def test_a_run_that_is_interrupted_before_its_lease_is_held_is_stopped(
    home, command, where, number
):
    path = job_file(Path("job.yaml"), command=["sleep", "600"])
    done = python(
        _INTERRUPTED_AFTER, "run", str(path), "--run-id", "early",
        INTERRUPT_AFTER=where, INTERRUPT_BY=str(int(number)),
    )  # fmt: skip
    assert done.returncode == 1
    assert f"{number.name}: stopping the job" in done.stderr
    assert "another process" not in done.stderr
    assert "Traceback" not in done.stderr
    told = command("status", "early", "-o", "json").json
    assert (told["state"], told["reason"]) == ("Stopped", "Interrupted")
    assert told["message"] == f"{number.name} to the process that drove it"
    assert not list(home.glob("training/*/worker*")), "something was started"


@pytest.mark.parametrize("store", ["refuses", "hangs"])
def test_who_interrupts_a_run_of_which_the_store_says_nothing_learns_how_to_stop_it(
    home, command, store
):
    path = job_file(Path("job.yaml"), command=["sleep", "600"])
    done = python(
        _SILENT_STORE + _INTERRUPTED_AFTER, "run", str(path), "--run-id", "early",
        STORE=store, INTERRUPT_BY="2", INTERRUPT_AFTER="airflow_training.admission.launch:launch",
    )  # fmt: skip
    assert done.returncode == 1
    assert "run early may be driven by another process, which goes on" in done.stderr
    assert "to stop it: airflow-training kill early" in done.stderr
    assert "stopping the job" not in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(home.glob("training/*/worker*")), "something was started"
    assert command("kill", "early").code == 0
    assert command("status", "early", "-o", "json").json["state"] == "Stopped"

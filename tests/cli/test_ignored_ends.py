"""Processes that do not end as they should: they outlive their command, or ignore SIGTERM. All of it is told."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import alive, job_file
from tests.waiting import wait_until

pytestmark = pytest.mark.e2e

FORKS = "import os, time\nif os.fork(): os._exit(0)\nos.setsid()\ntime.sleep(3600)"
HELPER = (
    "import multiprocessing as m\nif __name__ == '__main__':\n"
    "    m.set_start_method('spawn')\n    p = m.Process(target=print)\n    p.start()\n    p.join()"
)
DEAF = (
    "import os, pathlib, signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "pathlib.Path('up-' + os.environ['TRAINING_INDEX']).touch()\ntime.sleep(3600)"
)


def events(command, run: str) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = command("events", run, "-o", "json").json["events"]
    return told


def test_a_child_that_outlives_its_command_is_ended_and_told(command):
    path = job_file(Path("job.yaml"), ("worker", 1), command=[sys.executable, "-c", FORKS])
    done = command("run", str(path), "--run-id", "one")
    assert done.code == 0, done.stderr
    (told,) = [each for each in events(command, "one") if each["reason"] == "ProcessesLeft"]
    assert told["level"] == "warning"
    assert "1 process of it was still running and ended with it: " in told["message"]
    pid = int(told["message"].split("with it: ")[1].split(" ")[0])
    assert not Path(f"/proc/{pid}").exists()
    assert "still running" in command("status", "one").stdout
    assert f"{pid} (" in command("logs", "show", "one").stdout


def test_a_helper_of_python_that_ends_with_its_command_is_no_news(command, tmp_path):
    (tmp_path / "train.py").write_text(HELPER)
    path = job_file(
        Path("job.yaml"), ("worker", 1), command=[sys.executable, str(tmp_path / "train.py")]
    )
    assert command("run", str(path), "--run-id", "one").code == 0
    assert "ProcessesLeft" not in [each["reason"] for each in events(command, "one")]


def test_what_the_agent_does_beside_a_command_is_no_process_of_it(command, tmp_path):
    probing = tmp_path / "probing"
    waits = f"while [ ! -e {probing} ]; do sleep 0.1; done"
    probe = {"exec": {"command": ["sh", "-c", f"touch {probing}; sleep 3600"]}}
    container = {"name": "main", "readinessProbe": {**probe, "timeoutSeconds": 3600}}
    template = {"spec": {"containers": [container]}}
    path = job_file(Path("job.yaml"), ("worker", 1), command=["sh", "-c", waits])
    document = json.loads(path.read_text())
    document["spec"]["roles"][0]["template"] = template
    path.write_text(json.dumps(document))
    done = command("run", str(path), "--run-id", "one")
    assert done.code == 0, done.stderr
    assert "ProcessesLeft" not in [each["reason"] for each in events(command, "one")]


def test_a_question_to_the_python_of_a_command_is_no_process_of_it(command, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys, time\n"
        "if '-c' in sys.orig_argv:\n"  # how an agent asks which packages an interpreter finds
        "    open(os.environ['ASKED'], 'w').close()\n"
        "    time.sleep(3600)\n"
    )
    asked = tmp_path / "asked"
    (tmp_path / "train.py").write_text(
        f"import pathlib, time\nwhile not pathlib.Path({str(asked)!r}).exists(): time.sleep(0.1)\n"
    )
    path = job_file(
        Path("job.yaml"),
        ("worker", 1),
        command=[sys.executable, str(tmp_path / "train.py")],
        env=[
            {"name": "ASKED", "value": str(asked)},
            {"name": "PYTHONPATH", "value": str(tmp_path)},
        ],
    )
    done = command("run", str(path), "--run-id", "one")
    assert done.code == 0, done.stderr
    assert "ProcessesLeft" not in [each["reason"] for each in events(command, "one")]


def test_what_ignores_sigterm_is_killed_and_that_is_told(command, background, tmp_path):
    path = job_file(Path("job.yaml"), ("worker", 2), command=[sys.executable, "-c", DEAF])
    document = json.loads(path.read_text())
    document["spec"]["roles"][0]["template"] = {"spec": {"terminationGracePeriodSeconds": 1}}
    path.write_text(json.dumps(document))
    running = background("run", str(path), "--run-id", "one")
    running.until(lambda: len(list(tmp_path.glob("work/up-*"))) == 2)
    killed = command("kill", "one")
    assert killed.code == 0, killed.stderr
    running.wait()
    told = [each for each in events(command, "one") if each["reason"] == "GracePeriodExceeded"]
    assert {each["index"] for each in told} == {0, 1}
    assert told[0]["message"] == "did not end within 1 s of SIGTERM, and was killed"
    status = command("status", "one").stdout
    assert "2 instances did not end in time after SIGTERM, and had to be killed" in status
    assert "stopped by " in status
    assert "Killed: Killed" not in status
    assert "did not end within 1 s" in command("logs", "show", "one", "--role", "worker").stdout


def test_a_second_ctrl_c_says_how_to_end_it_at_once(command, background, tmp_path):
    path = job_file(Path("job.yaml"), ("worker", 1), command=[sys.executable, "-c", DEAF])
    running = background("run", str(path), "--run-id", "one")
    running.until(lambda: len(list(tmp_path.glob("work/up-*"))) == 1)
    running.send_signal(signal.SIGINT)
    wait_until(lambda: "StopRequested" in [each["reason"] for each in events(command, "one")])
    running.send_signal(signal.SIGINT)
    assert command("kill", "one", "--now").code == 0
    _, err = running.communicate()
    assert "SIGINT: stopping the job; nothing of it will be alive when this ends" in err
    assert "at once by: airflow-training kill one --now" in err


SLEEPS = "import os, pathlib, time\npathlib.Path('up-' + os.environ['TRAINING_INDEX']).touch()\ntime.sleep(3600)"


def started(background, tmp_path, **spec):
    path = job_file(Path("job.yaml"), ("worker", 2), command=[sys.executable, "-c", SLEEPS], **spec)
    running = background("run", str(path), "--run-id", "one")
    running.until(lambda: len(list(tmp_path.glob("work/up-*"))) == 2)
    return running


def test_a_run_whose_folder_is_deleted_ends_and_says_so(command, background, home, tmp_path):
    running = started(background, tmp_path, restart={"maxRestarts": 0})
    (home / "training").rename(home / "moved")
    assert running.wait() == 1
    status = command("status", "one").stdout
    assert "FolderDeleted" in status
    assert "was deleted or moved while it ran, so it was ended" in status
    assert alive(str(home / "training")) == []


@pytest.mark.parametrize("with_folders", [True, pytest.param(False, marks=pytest.mark.soak)])
def test_a_run_whose_store_is_deleted_leaves_nothing_alive_and_says_so(
    background, home, tmp_path, with_folders
):
    running = started(background, tmp_path)
    for file in home.glob("airflow_training.db*"):
        file.unlink()
    if with_folders:
        shutil.rmtree(home / "training")
    else:
        for pid in alive("TRAINING_INDEX=1") + alive("TRAINING_INDEX=0"):
            if str(home).encode() in Path(f"/proc/{pid}/environ").read_bytes():
                os.kill(pid, signal.SIGTERM)
    assert running.wait() == 1
    _, err = running.communicate()
    assert "its file was deleted or moved" in err
    assert "was deleted or moved while it ran" in err
    assert "nothing of it is alive" in err
    assert alive(str(home / "training")) == []

"""Instances in containers of apptainer, on the nodes of a real Slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_training.agent.proc import arguments_of, living_processes, marked_processes
from tests.runtimes.slurm.command_runs import home, logs, start
from tests.runtimes.slurm.lab import SEARCH
from tests.waiting import wait_until

__all__ = ["home"]

RUNTIME = next(
    (each for each in ("apptainer", "singularity") if shutil.which(each, path=SEARCH)), ""
)
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not RUNTIME, reason="neither apptainer nor singularity is installed"),
]
JOB = """\
apiVersion: airflow-training/v1
kind: TrainingJob
metadata: {name: contained}
spec:
  framework: pytorch
  image: %(image)s
  command: [sh, -c, '%(does)s']
  env: [{name: PATH, value: /odd:/bin}]
  restart: {scope: Instance, backoff: {initialSeconds: 0}}
  runtime:
    name: slurm
    options: {partition: main, time: "30", containerRuntime: %(runtime)s, binds: ["%(data)s:/data:ro"]}
  schedulingPolicy: {gang: slurm}
  roles:
    - {name: master}
    - name: worker
      replicas: 2
      template: {spec: {containers: [{name: pytorch, readinessProbe: {periodSeconds: 1, exec: {command: [cat, /which]}}}]}}
"""
TELLS = (
    "cat /which /data/sample beside.txt; echo rank $RANK of $WORLD_SIZE, path $PATH;"
    " echo made > $TRAINING_OUTPUT_DIR/made;"
)
FAILS_ONCE = "test $RANK.$TRAINING_ATTEMPT != 1.0 || exit 7;"


def copy_program(name: str, image: Path) -> None:
    """Put a program of this machine and its libraries into an image."""
    path = shutil.which(name)
    assert path is not None
    listed = subprocess.run(["ldd", path], stdout=subprocess.PIPE, text=True, check=True).stdout
    for each in (path, *re.findall(r"(/\S+) \(0x", listed)):
        target = image / each.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(each, target)
    link = image / "bin" / name
    link.parent.mkdir(exist_ok=True)
    if not link.exists():
        shutil.copy(path, link)


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an image as a folder, which apptainer takes like a file: it has a shell, and says that it is one."""
    folder = tmp_path_factory.mktemp("image")
    for name in ("sh", "cat", "sleep"):
        copy_program(name, folder)
    (folder / "which").write_text("the image\n")
    for each in ("tmp", "var/tmp", "proc", "dev", "sys", "etc", "root", "home", "data"):
        (folder / each).mkdir(parents=True)
    for each in ("etc/passwd", "etc/group"):
        (folder / each).touch()
    return folder


@pytest.fixture
def job(home: Path, image: Path) -> Callable[[str], None]:
    (home / "data").mkdir()
    (home / "data" / "sample").write_text("a sample\n")
    (home / "beside.txt").write_text("beside the job\n")

    def write(does: str) -> None:
        words = {"image": image, "does": does, "runtime": RUNTIME, "data": home / "data"}
        (home / "job.yaml").write_text(JOB % words)

    return write


def kill() -> None:
    killed = start("kill", "one")
    said = killed.communicate()[0]
    assert killed.returncode == 0, said


def test_a_gang_trains_in_containers_and_restarts_a_member_there(home, lab, job):
    job(f"{TELLS} {FAILS_ONCE}")
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    printed = logs(home)
    assert run.returncode == 0, (said, printed)
    assert "InstanceRestarted" in said
    assert set(printed) == {
        "master-0 attempt-0.0.0",
        "worker-0 attempt-0.0.0",
        "worker-0 attempt-0.0.1",
        "worker-1 attempt-0.0.0",
    }
    for text in printed.values():
        assert "the image\na sample\nbeside the job\n" in text
        assert "path /odd:/bin\n" in text
    assert len(list(home.glob("training/slurm/*/*/attempt-*/output/made"))) == 4
    wait_until(lambda: not lab.jobs())


def test_what_trains_in_a_container_is_seen_and_stopped(home, lab, job):
    job(f"{TELLS} echo waits; sleep 600")
    run = start("run", "job.yaml", "--run-id", "one")
    wait_until(lambda: "waits" in "".join(logs(home).values()), alive=lambda: run.poll() is None)
    # what a probe in the container prints stands in the log too
    wait_until(
        lambda: all(
            each.count("the image") > 1 for name, each in logs(home).items() if "worker" in name
        )
    )
    shell = start("shell", "one", "--role", "worker", "--index", "1", "--", "cat", "/which")
    assert (shell.communicate()[0], shell.returncode) == ("the image\n", 0)
    kill()
    run.communicate()
    wait_until(lambda: not lab.jobs())


@pytest.mark.parametrize("together", ["its agent", "all of its step"])
def test_nothing_of_a_container_outlives_its_agent(home, lab, job, together):
    job(f"{TELLS} echo waits; sleep 600")
    run = start("run", "job.yaml", "--run-id", "one")
    wait_until(
        lambda: "".join(logs(home).values()).count("waits") == 3, alive=lambda: run.poll() is None
    )
    (file,) = home.glob("training/slurm/*/master-0/attempt-0.0.0/.agent/state.json")
    state = json.loads(file.read_text())
    mark = [f"TRAINING_INSTANCE_UID={state['uid']}"]
    assert marked_processes(mark)
    agent = state["agent"]["pid"]
    step = [agent]
    if together == "all of its step":
        words = arguments_of(agent, "cmdline")
        step = [pid for pid in living_processes() if arguments_of(pid, "cmdline") == words]
        assert len(step) > 1  # what watches the agent
    for pid in step:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not marked_processes(mark))
    wait_until(
        lambda: "waits" in logs(home).get("master-0 attempt-0.0.1", ""),
        alive=lambda: run.poll() is None,
    )
    kill()
    run.communicate()
    wait_until(lambda: not lab.jobs())


def test_an_image_that_is_not_there_is_named(home, lab, job):
    job(TELLS)
    text = (home / "job.yaml").read_text()
    (home / "job.yaml").write_text(re.sub("image: .*", "image: /nowhere/train.sif", text))
    run = start("run", "job.yaml", "--run-id", "one")
    said = run.communicate()[0]
    assert run.returncode != 0
    assert "/nowhere/train.sif" in said, (said, logs(home))
    wait_until(lambda: not lab.jobs())

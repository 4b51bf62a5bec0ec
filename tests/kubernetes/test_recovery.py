"""Pods that die go on from what was committed: the library and the watched folder, in pods of their own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.kubernetes.emulator import Cluster
from tests.kubernetes.test_command_line import Shell

pytestmark = pytest.mark.e2e

WATCHED = """
import os, pathlib, time
out = pathlib.Path("out")
have = sorted(int(each.name) for each in out.glob("*")) if out.is_dir() else []
print("starts after step", have[-1] if have else 0, flush=True)
if not have:
    out.mkdir(exist_ok=True)
    (out / "4").write_text("whole")
    while not any(pathlib.Path(CHECKPOINTS).rglob("manifests/*")):  # it is committed
        time.sleep(0.01)
    os.kill(os.getpid(), 9)
(out / "12").write_text("the last")
"""
SAVED = """
import os, numpy
from airflow_training.checkpoints import Saver

rank = int(os.environ["TRAINING_RANK"])
saver = Saver()
found = saver.restore()
total = numpy.zeros(3) if found is None else found.state()["total"]
start = step = found.step if found else 0
state = lambda: {"total": total, "rank": rank}
print("starts after step", start, flush=True)
for step in range(start + 1, 13):
    total += step
    saver.boundary(step, state)
    if rank == 1 and step == 7 and not start:
        os.kill(os.getpid(), 9)
saver.close(state)
print("total", total[0], flush=True)
"""


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Cluster(kubelet="processes") as cluster:
        yield Shell(tmp_path, cluster.write_kubeconfig(tmp_path / "kubeconfig"))


def a_job(shell: Shell, script: str, *, replicas: int, scope: str, **checkpoint: object) -> None:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "saved"},
        "spec": {
            "framework": "custom",
            "image": "trainer:1",
            "command": ["python3", "-c", script],
            "checkpoint": {"uri": str(shell.home / "ckpt"), **checkpoint},
            "restart": {"scope": scope, "backoff": {"initialSeconds": 0.05}},
            "roles": [{"name": "worker", "replicas": replicas}],
        },
    }
    (shell.home / "job.yaml").write_text(yaml.safe_dump(document))


def log(shell: Shell, index: int, attempt: int) -> str:
    words = ("--role", "worker", "--index", str(index), "--attempt", str(attempt))
    return shell("logs", "show", "r", *words).stdout


def test_a_watched_folder_is_put_back_in_the_next_pod(shell: Shell):
    script = f"CHECKPOINTS = {str(shell.home / 'ckpt')!r}\n{WATCHED}"
    a_job(shell, script, replicas=1, scope="Instance", watch="out")
    done = shell("run", "job.yaml", "--runtime", "kubernetes", "--run-id", "r", "-o", "json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["checkpoint"]["step"] == 12
    assert json.loads(done.stdout)["instances"][0]["attempt"] == 1
    ready, *first = log(shell, 0, 0).splitlines()
    assert ready.endswith("checked: node, memory, disk, store")
    assert first == ["starts after step 0"]
    assert "starts after step 4\n" in log(shell, 0, 1)


@pytest.mark.soak  # in one pod after the other: test_in_place.py
def test_all_ranks_go_on_from_the_step_that_all_of_them_saved(shell: Shell):
    a_job(shell, SAVED, replicas=2, scope="Job", everySteps=3)
    done = shell("run", "job.yaml", "--runtime", "kubernetes", "--run-id", "r", "-o", "json")
    assert done.returncode == 0, done.stderr
    status = json.loads(done.stdout)
    assert status["restarts"]["infrastructure"] == 1
    assert status["checkpoint"]["step"] == 12
    for index in (0, 1):
        before, after = log(shell, index, 0), log(shell, index, 1)
        assert before.splitlines()[1:] == ["starts after step 0"], "after the look around"
        assert re.search(r"starts after step [36]\n", after)
        assert after.endswith("total 78.0\n")
    assert json.loads(done.stdout)["job_attempt"] == 1

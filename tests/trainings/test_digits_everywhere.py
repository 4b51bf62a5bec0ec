"""The digits job as it stands, on each engine: killed once, it ends with the state of one that never was.

Some requests to its object store fail meanwhile, and are repeated by the client.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import fsspec
import pytest
import yaml

from airflow_training.agent.proc import arguments_of, marked_processes, parent_of
from tests.checkpoints.conftest import s3_endpoint, s3_root
from tests.kubernetes.emulator import Cluster
from tests.runtimes.slurm.lab import missing, running_lab
from tests.waiting import wait_until

__all__ = ["s3_endpoint", "s3_root"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLE = Path(__file__).resolve().parents[2] / "dags" / "examples" / "digits"
EPOCHS = 8
STEPS = EPOCHS * 45
KILLED_AT = STEPS // 4
COMMAND = [sys.executable, "-m", "airflow_training.cli"]
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")  # fmt: skip


@dataclass(frozen=True)
class Digits:
    """Where the job lies and is typed."""

    home: Path
    root: str
    """Of its checkpoints."""

    def start(self, run_id: str, runtime: str) -> subprocess.Popen[str]:
        words = ["run", "job.yaml", "--run-id", run_id, "--runtime", runtime]
        return subprocess.Popen(
            [*COMMAND, *words, "-p", f"epochs={EPOCHS}"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def ask(self, *words: str) -> dict[str, object]:
        done = subprocess.run(
            [*COMMAND, *words, "-o", "json"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        found: dict[str, object] = json.loads(done.stdout)
        return found

    def committed_step(self, run_id: str) -> int:
        """Return the newest step of which there is a manifest, 0 for none."""
        files = fsspec.filesystem("s3", skip_instance_cache=True, use_listings_cache=False)
        files_of_runs = files.find(self.root)  # one list: a probe's key may be gone before a second
        manifest = re.compile(rf"/{run_id}-[^/]*/[^/]*/manifests/(\d+)[^/]*\.json$")
        return max(
            (int(found[1]) for path in files_of_runs if (found := manifest.search(path))), default=0
        )

    def result(self, run_id: str) -> tuple[object, object]:
        """Return step and digest over the whole state of the last checkpoint."""
        shown = self.ask("checkpoints", "show", run_id)
        return shown["step"], shown["root_digest"]


def training_of(role: str, run_id: str) -> int:
    """Return the pid of what runs the script for a role."""
    wanted = f"TRAINING_ROLE={role}".encode()
    running = {
        pid
        for pid in marked_processes([f"TRAINING_RUN_ID={run_id}"])
        if wanted in arguments_of(pid, "environ") and b"train.py" in arguments_of(pid, "cmdline")
    }
    assert running, "it has ended"
    (found,) = (pid for pid in running if parent_of(pid) not in running)  # it forks helpers
    return found


@pytest.fixture
def digits(tmp_path: Path, s3_root: str, monkeypatch: pytest.MonkeyPatch) -> Digits:
    """Put the example where commands are typed, with checkpoints where every engine reaches them."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    shutil.copy(EXAMPLE / "train.py", "train.py")
    document = yaml.safe_load((EXAMPLE / "digits-checkpointed.yaml").read_text())
    spec = document["spec"]
    spec["checkpoint"]["uri"] = s3_root
    spec["env"] = [{"name": name, "value": os.environ[name]} for name in CREDENTIALS]
    spec["restart"] = {"backoff": {"initialSeconds": 0.05}}
    Path("job.yaml").write_text(yaml.safe_dump(document))
    return Digits(tmp_path, s3_root)


@pytest.fixture
def tired_store(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the object store fail three of a hundred requests, as real ones do when they are asked too much."""
    backend: Any = pytest.importorskip("moto.s3.models").S3Backend
    generator = random.Random(0)

    def tire(name: str) -> None:
        answer = getattr(backend, name)

        def answer_mostly(*args: object, **kwargs: object) -> object:
            if generator.random() < 0.03:
                raise RuntimeError("out of breath")
            return answer(*args, **kwargs)

        monkeypatch.setattr(backend, name, answer_mostly)

    for name in ("get_object", "head_object", "list_objects_v2", "put_object"):
        tire(name)


@contextlib.contextmanager
def engine(runtime: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Have the engine there; a local one needs none."""
    if runtime == "slurm":
        if missing():
            pytest.skip(missing())
        with running_lab(home / "slurm-lab"):
            yield
    elif runtime == "kubernetes":
        with Cluster(kubelet="processes") as cluster:
            image = yaml.safe_load(Path("job.yaml").read_text())["spec"]["image"]
            cluster.control.image_starts_in(image, str(home))
            monkeypatch.setenv("KUBECONFIG", str(cluster.write_kubeconfig(home / "kubeconfig")))
            yield
    else:
        yield


@pytest.mark.usefixtures("tired_store")
def test_killed_once_on_each_engine_it_ends_with_the_same_digest(digits, monkeypatch):
    with digits.start("calm", "local") as calm:
        said = calm.communicate()[0]
    assert calm.returncode == 0, said
    expected = digits.result("calm")
    assert expected[0] == STEPS

    found = {}
    for runtime in ("local", "slurm", "kubernetes"):
        with engine(runtime, digits.home, monkeypatch):
            run_id = f"on-{runtime}"
            with digits.start(run_id, runtime) as run:
                try:
                    wait_until(
                        lambda: digits.committed_step(run_id) >= KILLED_AT,  # noqa: B023 - called here
                        alive=lambda: run.poll() is None,
                    )
                    os.kill(training_of("worker", run_id), signal.SIGKILL)
                finally:
                    said = run.communicate()[0]
            assert run.returncode == 0, said
            assert "InstanceRestarted" in said or "JobRestarted" in said, said
            found[runtime] = digits.result(run_id)
    assert found == dict.fromkeys(found, expected)

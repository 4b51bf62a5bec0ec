"""`cloud run` against a cluster whose pods are processes: with a service, and into a namespace without one."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.agent.code_tree import pack_key
from airflow_training.capture import layout
from airflow_training.cloud.service.tree_storage import TreeStorage
from airflow_training.environments import record
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, wait_until

SCRIPT = """
import os, pathlib, sys, time
from pkg import width
rank = os.environ["TRAINING_RANK"]
print("rank", rank, "of", os.environ["TRAINING_WORLD_SIZE"], "width", width, sys.argv[1:], flush=True)
if "--wait" in sys.argv:
    time.sleep(600)
if rank == "0":
    pathlib.Path("out").mkdir(exist_ok=True)
    pathlib.Path("out/model.pt").write_bytes(b"weights")
    pathlib.Path("notes.txt").write_text("not a model")
if "--fail" in sys.argv:
    sys.exit(3)
"""


@dataclass
class Laptop:
    """Somebody's machine: a home, and a kubeconfig for a cluster."""

    folder: Path
    cluster: Cluster

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.kubeconfig = self.cluster.write_kubeconfig(self.folder / "kubeconfig")
        self.storage = self.folder / "storage"
        (self.folder / "record.json").write_text(json.dumps(record().to_json()))
        catalogue = {
            "apiVersion": "airflow-training/v1",
            "kind": "EnvironmentCatalogue",
            "spec": {"images": [{"name": "torch:1", "record": "record.json"}]},
        }
        (self.folder / "catalogue.yaml").write_text(yaml.safe_dump(catalogue))

    def settings(self, **spec: Any) -> Path:
        """Write the document of a target and return its file."""
        document = {
            "apiVersion": "airflow-training/v1",
            "kind": "CloudService",
            "spec": {
                "runtime": {"name": "kubernetes"},
                "storage": str(self.storage),
                "images": "catalogue.yaml",
                **spec,
            },
        }
        path = self.folder / "service.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def starts(self, *words: str, cwd: Path | None = None, **more: str) -> subprocess.Popen[str]:
        mine = {"AIRFLOW_HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig), **more}
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", *words],
            cwd=cwd or self.folder,
            env={**os.environ, **mine},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str, cwd: Path | None = None) -> tuple[int, str, str]:
        process = self.starts(*words, cwd=cwd)
        out, said = process.communicate(timeout=PATIENCE)
        return process.returncode, out, said


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def laptop(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Laptop:
    laptop = Laptop(tmp_path_factory.mktemp("laptop"), cluster)
    code, out, said = laptop.types(
        "cloud", "login", "mine", "kubernetes:/default", "--config", str(laptop.settings())
    )
    assert (code, out) == (0, "mine is kubernetes:/default\n"), said
    return laptop


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "train.py").write_text(SCRIPT)
    (folder / "pkg.py").write_text("width = 3\n")
    return folder


@pytest.mark.e2e
def test_two_replicas_run_in_a_namespace_and_the_model_comes_back(laptop, project):
    code, out, said = laptop.types(
        "cloud", "run", "--replicas", "2", "--all", "train.py", "--lr", "0.1", cwd=project
    )
    assert code == 0, said
    assert sorted(out.splitlines()) == [
        f"[{rank}] rank {rank} of 2 width 3 ['--lr', '0.1']" for rank in (0, 1)
    ]
    assert "environment: torch:1 (python3) as it is" in said
    assert "model: out/model.pt (7 bytes)" in said
    assert (project / "out/model.pt").read_bytes() == b"weights"
    assert not (project / "notes.txt").exists()
    run = said.partition("run ")[2].split()[0]
    code, out, said = laptop.types("cloud", "bill", run, "-o", "json")
    assert code == 0, said
    bill = json.loads(out)
    assert bill["final"] is True
    assert {row["role"] for row in bill["rows"]} == {"master", "worker"}
    code, out, said = laptop.types("events", run)
    assert "EnvironmentReady" in out, said


def _wheel(folder: Path, name: str, version: str, text: str) -> None:
    """A wheel of one module, as an index of the cluster would have it."""
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", text)
        wheel.writestr(
            f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        )
        wheel.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{info}/RECORD", "")


@pytest.mark.e2e
def test_what_an_image_lacks_is_installed_by_one_instance_for_all_that_run(
    laptop, project, tmp_path
):
    there, index = Laptop(tmp_path / "laptop", laptop.cluster), tmp_path / "index"
    index.mkdir()
    version = record().by_name["idna"].version
    _wheel(index, "idna", version, "print('mine', flush=True)\n")
    known = json.loads((there.folder / "record.json").read_text())
    known["distributions"] = [row for row in known["distributions"] if row["name"] != "idna"]
    (there.folder / "record.json").write_text(json.dumps(known))
    env = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index)}
    given = [{"name": name, "value": value} for name, value in env.items()]
    settings = str(there.settings(env=given, python=sys.executable))
    assert there.types("cloud", "login", "n", "kubernetes:/default", "--config", settings)[0] == 0
    (project / "train.py").write_text("import idna\nprint(idna.__file__)\n")
    code, out, said = there.types(
        "cloud", "run", "--replicas", "2", "--all", "train.py", cwd=project
    )
    assert code == 0, said
    assert "with 1 distribution on top" in said
    assert out.count("mine") == 2
    for wheel in index.iterdir():
        wheel.unlink()  # nobody asks the index again
    code, out, said = there.types(
        "cloud", "run", "--replicas", "2", "--all", "train.py", cwd=project
    )
    assert (code, out.count("mine")) == (0, 2), said
    [archive] = there.storage.glob("environments/*/packages.tar")
    archive.unlink()
    code, out, said = there.types("cloud", "run", "train.py", cwd=project)
    assert (code, out) == (2, ""), said
    assert "No matching distribution found for idna" in said


@pytest.mark.soak
def test_the_process_ends_as_the_script_ended_there(laptop, project):
    code, out, said = laptop.types("cloud", "run", "train.py", "--fail", cwd=project)
    assert code == 3, said
    assert out.startswith("rank 0 of 1")
    assert "next: airflow-training status" in said
    assert not (project / "out").exists()


@pytest.mark.soak
def test_an_image_that_is_nowhere_is_named(laptop, project, tmp_path, cluster):
    there = Laptop(tmp_path / "laptop", laptop.cluster)
    catalogue = there.folder / "catalogue.yaml"
    catalogue.write_text(catalogue.read_text().replace("torch:1", "nowhere.invalid/torch:1"))
    cluster.control.refuse_image("nowhere.invalid/torch:1", "not found")
    settings = str(there.settings())
    assert there.types("cloud", "login", "n", "kubernetes:/default", "--config", settings)[0] == 0
    code, out, said = there.types("cloud", "run", "train.py", cwd=project)
    assert (code, out) == (1, ""), said
    assert "nowhere.invalid/torch:1" in said
    assert "next: airflow-training" in said
    assert not (project / "out").exists()


@pytest.mark.soak
def test_an_interrupt_ends_the_pod(laptop, project, cluster):
    process = laptop.starts("cloud", "run", "train.py", "--wait", cwd=project)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("rank 0 of 1")
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert "Stopped" in said
    wait_until(lambda: not _living(cluster, "default"), "no pod is left")


@pytest.mark.soak
def test_a_service_submits_to_the_cluster(laptop, project, tmp_path):
    here = Laptop(tmp_path / "office", laptop.cluster)
    settings = str(here.settings(resources={"cpu": 1}))
    service = here.starts("cloud", "serve", "--port", "0", "--token", "k", "--config", settings)
    try:
        assert service.stdout is not None
        url = service.stdout.readline().strip()
        mine = Laptop(tmp_path / "mine", laptop.cluster)
        assert mine.types("cloud", "login", "office", url, "--key", "k")[0] == 0
        code, out, said = mine.types("cloud", "run", "train.py", cwd=project)
        assert (code, out) == (0, "rank 0 of 1 width 3 []\n"), said
        assert (project / "out/model.pt").read_bytes() == b"weights"
    finally:
        service.terminate()
        service.communicate(timeout=PATIENCE)


@pytest.mark.soak
def test_a_quota_that_others_have_used_is_told_before_anything_moves(laptop, project, cluster):
    cluster.control.create_namespace("full")
    cluster.control.create(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "small"},
            "spec": {"hard": {"pods": "2"}},
        },
        namespace="full",
    )
    sleeper = {"name": "main", "image": "busybox", "command": ["sleep", "inf"]}
    cluster.control.create(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "other"},
            "spec": {"containers": [sleeper], "terminationGracePeriodSeconds": 1},
        },
        namespace="full",
    )
    there = Laptop(laptop.folder / "full", cluster)
    settings = str(there.settings())
    assert there.types("cloud", "login", "full", "kubernetes:/full", "--config", settings)[0] == 0
    code, _, said = there.types("cloud", "run", "--replicas", "2", "train.py", cwd=project)
    assert code == 2, said
    assert "exceeded quota: small" in said
    assert not (there.storage / "trees").exists()


UNTIL = """
import json, os, pathlib, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
for step in range(1, 100_000):
    dist.barrier()
    if rank == 0:
        pathlib.Path("model.pt").write_bytes(b"step %d" % step)
    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as file:
        line = {"step": step, "metrics": {"loss": 1 / step}, "time": time.time()}
        file.write(json.dumps(line) + chr(10))
    time.sleep(0.2)
"""


@pytest.mark.e2e
def test_a_condition_ends_a_gang_and_the_model_comes_back(laptop, project, cluster):
    (project / "train.py").write_text(UNTIL)
    words = ["cloud", "run", "--replicas", "2", "--until", "loss < 0.2", "train.py"]
    code, _, said = laptop.types(*words, cwd=project)
    assert code == 0, said
    model = (project / "model.pt").read_text()
    assert int(model.removeprefix("step ")) > 5
    run = said.partition("run ")[2].split()[0]
    code, out, said = laptop.types("status", run, "-o", "json")
    told = json.loads(out)
    assert (told["state"], told["reason"]) == ("Succeeded", "StopConditionMet"), said
    assert told["message"].startswith("stop.until holds: loss 0.")
    code, out, _ = laptop.types("cloud", "bill", run, "-o", "json")
    assert json.loads(out)["final"] is True
    wait_until(lambda: not _living(cluster, "default"), "no pod is left")


EARLY = """
import os, pathlib, time
for number in range(2):
    with open("model.pt", "wb") as file:
        for _ in range(30):
            file.write(b"%d" % number * 1000)
            file.flush()
            time.sleep(0.1)
    while number < 1 and not os.path.exists(os.environ["GO"]):
        time.sleep(0.05)
"""


@pytest.mark.e2e
def test_models_come_back_while_pods_train(laptop, project, tmp_path):
    (project / "train.py").write_text(EARLY)
    go, model = tmp_path / "go", project / "model.pt"
    words = ["cloud", "run", "--returns", "checkpoints", "--env", f"GO={go}", "train.py"]
    process = laptop.starts(*words, cwd=project)
    wait_until(
        lambda: model.exists() and model.read_bytes() == b"0" * 30_000,
        alive=lambda: process.poll() is None,
    )
    go.touch()
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, said
    assert model.read_bytes() == b"1" * 30_000
    storage = laptop.storage / "runs" / said.partition("run ")[2].split()[0]
    assert not list(storage.rglob(".*.part"))


def _living(cluster: Cluster, namespace: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in cluster.control.list("pods", namespace=namespace)
        if pod["status"]["phase"] in ("Pending", "Running")
    ]


def _stored(laptop: Laptop, project: Path) -> str:
    """Put a project into the storage; returns its digest."""
    tree = layout.tree_of(project.parent)
    contents = {
        hashlib.sha256(p.read_bytes()).hexdigest(): p.read_bytes() for p in project.iterdir()
    }
    TreeStorage(str(laptop.storage)).put(tree, contents.__getitem__)
    return tree.digest


def _job(laptop: Laptop, digest: str) -> str:
    document = {
        "apiVersion": "airflow-training/v1",
        "kind": "TrainingJob",
        "metadata": {"name": "train"},
        "spec": {
            "framework": "custom",
            "runtime": {"name": "kubernetes"},
            "image": "torch:1",
            "command": ["python3", "train.py"],
            "workingDir": "project",
            "code": {"uri": str(laptop.storage), "digest": f"sha256:{digest}"},
            "roles": [{"name": "worker", "restartPolicy": "Never"}],
        },
    }
    path = laptop.folder / f"{digest}.yaml"
    path.write_text(yaml.safe_dump(document))
    return str(path)


@pytest.mark.soak
def test_a_tampered_tree_is_never_executed_in_a_pod(laptop, project):
    digest = _stored(laptop, project)
    pack = laptop.storage / pack_key(digest)
    pack.write_bytes(pack.read_bytes().replace(b"rank", b"evil"))
    code, out, said = laptop.types("run", _job(laptop, digest), "--run-id", "tampered")
    assert code == 1, said
    assert "CodeDamaged" in out
    assert "nothing of it was executed" in out
    _, log, _ = laptop.types("logs", "show", "tampered", "--role", "worker")
    assert "of 1 width" not in log


@pytest.mark.soak
def test_a_pod_that_is_killed_while_it_prepares_executes_nothing(laptop, project, cluster):
    (project / "pkg.py").write_text("width = 4\n")
    digest = _stored(laptop, project)
    pack = laptop.storage / pack_key(digest)
    pack.unlink()
    os.mkfifo(pack)  # whoever reads it waits
    process = laptop.starts("run", _job(laptop, digest), "--run-id", "killed")

    def runs() -> list[str]:
        pods = cluster.control.list("pods", namespace="default")
        return [
            pod["metadata"]["name"]
            for pod in pods
            if pod["status"]["phase"] == "Running" and "train" in pod["metadata"]["name"]
        ]

    [name] = wait_until(runs, "the pod prepares", alive=lambda: process.poll() is None)
    cluster.control.kill_container(name)
    out, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert "Failed" in out
    _, log, _ = laptop.types("logs", "show", "killed", "--role", "worker")
    assert "of 1 width" not in log

"""A job names its environment: its commands run on that Python, here and in pods, and it is made once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_training.checkpoints.store import LocalStore
from airflow_training.documents.resolved import RunKey
from airflow_training.environments import catalogue_here
from airflow_training.environments.storage import add
from tests.environments.conftest import look_only_in, write_wheels
from tests.environments.records import dist, with_dist
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.e2e

(HERE,) = catalogue_here().images
TINY = with_dist(replace(HERE.record, distributions=[]), dist("tinyone", "1.0"))
SCRIPT = "import sys, tinyone; print('runs on', sys.prefix, tinyone.__version__, flush=True)"


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a storage with `tiny@1`, and `tiny@2` that names an image."""
    folder = tmp_path_factory.mktemp("storage")
    with pytest.MonkeyPatch.context() as patch:
        look_only_in(write_wheels(folder / "wheels"), folder / "uv", patch)
        store = LocalStore(folder / "store")
        add(store, "tiny@1", TINY, sys.executable)
        add(store, "tiny@2", TINY, sys.executable, image="tiny:2")
    return folder / "store"


class Machine:
    """One with a home, a cache and a storage of environments."""

    def __init__(self, folder: Path, storage: Path) -> None:
        self.folder = folder
        self.storage = folder / "store"
        shutil.copytree(storage, self.storage)
        self.cache = folder / "cache" / "airflow-training" / "environments"
        self.more: dict[str, str] = {}

    def job(self, name: str = "job", **spec: Any) -> Path:
        document = {
            "apiVersion": "airflow-training/v1",
            "kind": "TrainingJob",
            "metadata": {"name": name},
            "spec": {
                "framework": "custom",
                "runtime": {"name": "local"},
                "environment": {"name": "tiny", "version": "1"},
                "command": ["python", "-c", SCRIPT],
                "roles": [{"name": "worker", "replicas": 2}],
                **spec,
            },
        }
        path = self.folder / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    def starts(self, *words: str) -> subprocess.Popen[str]:
        env = {
            **os.environ,
            "AIRFLOW_HOME": str(self.folder),
            "XDG_CACHE_HOME": str(self.folder / "cache"),
            "AIRFLOW__TRAINING__ENVIRONMENTS": str(self.storage),
            **self.more,
        }
        return subprocess.Popen(
            [sys.executable, "-m", "airflow_training.cli", *words],
            cwd=self.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def types(self, *words: str) -> tuple[int, str, str]:
        process = self.starts(*words)
        out, said = process.communicate(timeout=PATIENCE)
        return process.returncode, out, said

    def log(self, run: str, index: int = 0) -> str:
        uid = RunKey(source="cli", run_id=run).uid
        paths = (self.folder / "training" / uid / f"worker-{index}").glob("attempt-*/log")
        found = "".join(path.read_text() for path in sorted(paths) if path.is_file())
        return (
            found or self.types("logs", "show", run, "--role", "worker", "--index", str(index))[1]
        )

    def made(self) -> list[Path]:
        return sorted(self.cache.glob("*/environment.json"))


@pytest.fixture
def machine(tmp_path: Path, storage: Path) -> Machine:
    return Machine(tmp_path, storage)


def test_commands_run_on_the_environment_and_it_is_told(machine: Machine):
    path = str(machine.job())
    code, out, said = machine.types("run", path, "--run-id", "r1", "-o", "json")
    assert code == 0, said
    status = json.loads(out)
    (made,) = machine.made()
    for index in (0, 1):
        assert f"runs on {made.parent} 1.0" in machine.log("r1", index)
    told = status["environment"]
    assert (told["name"], told["version"], len(told["digest"])) == ("tiny", "1", 64)
    assert f"environment: tiny@1, digest {told['digest'][:12]}" in machine.types("status", "r1")[1]
    explained = json.loads(machine.types("explain", path, "-o", "json", "--runtime", "local")[1])
    assert explained["environment"]["digest"] == told["digest"]
    shutil.rmtree(machine.storage / "files")  # what is there needs no storage
    code, _, said = machine.types("run", path, "--run-id", "r2")
    assert (code, f"runs on {made.parent}" in machine.log("r2")) == (0, True), said


def test_twenty_submits_at_once_make_one_download(machine: Machine):
    path = str(machine.job(roles=[{"name": "worker", "replicas": 1}]))
    runs = [machine.starts("run", path, "--run-id", f"r{i}") for i in range(20)]
    ends = [(each.communicate(timeout=PATIENCE)[1], each.returncode) for each in runs]
    assert [code for _, code in ends] == [0] * 20, ends
    assert len(machine.made()) == 1
    logs = [machine.log(f"r{i}") for i in range(20)]
    assert sum("the environment tiny@1 was made" in each for each in logs) == 1
    assert all("runs on" in each for each in logs)


def test_flipped_bytes_are_found_before_a_command_runs_on_them(machine: Machine):
    path = str(machine.job(roles=[{"name": "worker", "replicas": 1}]))
    assert machine.types("run", path, "--run-id", "r1")[0] == 0
    (module,) = machine.cache.glob("*/lib/python*/site-packages/tinyone/__init__.py")
    whole = module.read_bytes()
    module.write_bytes(whole.replace(b"1.0", b"6.6"))
    assert machine.types("run", path, "--run-id", "r2")[0] == 0
    assert "1.0" in machine.log("r2")
    assert module.read_bytes() == whole


def test_gc_takes_nothing_that_a_job_runs_on(machine: Machine):
    script = "import os, time; open('begun', 'w').close(); time.sleep(600)"
    path = str(
        machine.job(command=["python", "-c", script], roles=[{"name": "worker", "replicas": 1}])
    )
    run = machine.starts("run", path, "--run-id", "r1")
    try:
        wait_until((machine.folder / "begun").exists, "the command runs")
        code, out, _ = machine.types("environments", "gc", "--unused-days", "0", "-o", "json")
        assert (code, json.loads(out)["removed"]) == (0, {})
        code, _, said = machine.types("environments", "remove", "tiny@1")
        assert (code != 0, "a job runs on" in said) == (True, True)
        assert len(machine.made()) == 1
    finally:
        run.send_signal(signal.SIGINT)
        run.communicate(timeout=PATIENCE)
        machine.types("kill", "r1")
    removed = json.loads(machine.types("environments", "gc", "--unused-days", "0", "-o", "json")[1])
    assert len(removed["removed"]) == 1


def test_an_attempt_that_takes_its_environment_with_it_gets_it_again(machine: Machine):
    """The agent that waits for the next attempt keeps nobody from removing or repairing it."""
    script = (
        "import os, shutil, sys, tinyone; print('runs on', sys.prefix, flush=True);"
        " os.path.exists('once') and sys.exit(0); open('once', 'w').close();"
        " open(tinyone.__file__, 'a').write('#'); sys.exit(1)"
    )
    path = str(
        machine.job(command=["python", "-c", script], roles=[{"name": "worker", "replicas": 1}])
    )
    code, _, said = machine.types("run", path, "--run-id", "r1")
    assert code == 0, said
    log = machine.log("r1")
    assert (log.count("was made in"), "a job runs on it" in log) == (2, False), log


def test_a_kill_while_it_is_made_leaves_nothing_that_counts(machine: Machine):
    """The agent and all that it has started are killed at once, again and again, at other moments."""
    path = str(machine.job(roles=[{"name": "worker", "replicas": 1}]))
    order = _order(machine, path)
    for seconds in (0.05, 0.2, 0.4, 0.6, 0.8, 1.2):
        child = subprocess.Popen(order, stdout=subprocess.PIPE, start_new_session=True, text=True)
        try:
            child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            child.communicate()
    assert machine.types("run", path, "--run-id", "r1")[0] == 0
    assert "runs on" in machine.log("r1")
    assert len(machine.made()) == 1


def _order(machine: Machine, path: str) -> list[str]:
    """What an agent starts to have it ready."""
    from airflow_training.agent.package import environment_program

    explained = json.loads(machine.types("explain", path, "-o", "json", "--runtime", "local")[1])
    found = explained["environment"]
    order = {key: found[key] for key in ("name", "version", "digest", "storage", "python")}
    document = {"environment": order, "cache": str(machine.cache)}
    program = environment_program(machine.folder / "programs")
    return [sys.executable, "-I", "-S", str(program), json.dumps(document)]


def test_a_version_that_was_put_in_its_place_is_refused(machine: Machine):
    path = str(machine.job(roles=[{"name": "worker", "replicas": 1}]))
    words = _order(machine, path)
    document = json.loads(words[-1])
    document["environment"]["digest"] = "0" * 64
    done = subprocess.run([*words[:-1], json.dumps(document)], capture_output=True, text=True, check=False)  # fmt: skip
    assert (done.returncode, "was admitted with 000000000000" in done.stdout) == (2, True)
    assert machine.made() == []


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"name": "tiny", "version": "7"}, "is not there"),
        ({"name": "tiny"}, "says which version of tiny is meant"),
        ({"name": "builtin", "version": "0.0.1"}, "has the version of the package"),
        ({"name": "../etc", "version": "1"}, "has other characters than"),
    ],
)
def test_what_is_not_there_is_refused_before_anything_starts(
    machine: Machine, environment: dict[str, str], words: str
):
    code, _, said = machine.types("run", str(machine.job(environment=environment)), "--run-id", "r")
    assert (code, "spec.environment" in said, words in said) == (2, True, True), said


def test_slurm_makes_none_ready_and_says_so(machine: Machine):
    path = str(machine.job(runtime={"name": "slurm"}))
    code, _, said = machine.types("run", path, "--run-id", "r")
    assert (code, "makes no environments ready" in said) == (2, True), said


# in pods -------------------------------------------------------------------------------------------
@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture
def in_pods(machine: Machine, cluster: Cluster) -> Machine:
    kubeconfig = cluster.write_kubeconfig(machine.folder / "kubeconfig")
    machine.more = {
        "KUBECONFIG": str(kubeconfig),
        "AIRFLOW__TRAINING__ENVIRONMENTS": machine.storage.as_uri(),
    }
    return machine


def test_an_init_container_makes_it_where_no_image_has_it(in_pods: Machine):
    path = str(in_pods.job("made", runtime={"name": "kubernetes"}, image="python:3.11"))
    code, out, said = in_pods.types("run", path, "--run-id", "k1", "-o", "json")
    assert code == 0, said + out
    for index in (0, 1):
        assert "/environment/" in in_pods.log("k1", index)
    assert in_pods.made() == []  # nothing of this machine's cache was used


def test_its_image_is_the_one_of_the_pods(in_pods: Machine):
    path = str(in_pods.job("imaged", runtime={"name": "kubernetes"}, environment={"name": "tiny", "version": "2"}, command=["python3", "-c", "print('in the image')"]))  # fmt: skip
    code, out, said = in_pods.types("run", path, "--run-id", "k2", "-o", "json")
    assert code == 0, said
    assert json.loads(out)["environment"]["image"] == "tiny:2"
    other = str(in_pods.job("other", runtime={"name": "kubernetes"}, image="torch:1", environment={"name": "tiny", "version": "2"}))  # fmt: skip
    code, _, said = in_pods.types("run", other, "--run-id", "k3")
    assert (code, "has an image of its own, tiny:2" in said) == (2, True)


def test_damaged_files_fail_the_pod_with_their_name(in_pods: Machine):
    (wheel,) = (in_pods.storage / "files").glob("*/*.whl")
    whole = bytearray(wheel.read_bytes())
    whole[60] ^= 1
    wheel.write_bytes(whole)
    path = str(in_pods.job("damaged", runtime={"name": "kubernetes"}, image="python:3.11"))
    code, out, said = in_pods.types("run", path, "--run-id", "k4", "-o", "json")
    assert (code, "EnvironmentRefused" in out, "damaged in the storage" in out) == (1, True, True), said + out  # fmt: skip


@pytest.mark.parametrize("name", ["builtin", "tiny"])
def test_what_only_this_machine_has_is_refused_for_a_cluster(in_pods: Machine, name: str):
    in_pods.more["AIRFLOW__TRAINING__ENVIRONMENTS"] = str(in_pods.storage)
    environment = {"name": name, **({} if name == "builtin" else {"version": "1"})}
    path = str(in_pods.job(runtime={"name": "kubernetes"}, image="python:3.11", environment=environment))  # fmt: skip
    code, _, said = in_pods.types("run", path, "--run-id", "k5")
    assert (code, "of this machine" in said) == (2, True), said

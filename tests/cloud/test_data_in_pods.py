"""Data that stays on the laptop is read by pods: fetched when it is read, once for all of them, and by its name where it is not."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_training.state.store import Store
from tests.cloud.test_run_on_cluster import Laptop
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE, wait_until

TWO_RANKS = """
import csv, os, pathlib, sys
rank = int(os.environ["TRAINING_RANK"])
data = pathlib.Path("data")
names = sorted(each.name for each in (data / "small").iterdir())
with open(data / "table.csv") as file:
    rows = list(csv.reader(file))
for name in names:
    assert (data / "small" / name).read_bytes() == name.encode() * 100, name
outside = open(sys.argv[1]).read()
print("rank", rank, len(names), len(rows), outside, os.path.realpath(data), flush=True)
if rank == 0:
    pathlib.Path("model.pt").write_bytes(b"weights")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path / "laptop", cluster)
    settings = str(laptop.settings())
    assert (
        laptop.types("cloud", "login", "mine", "kubernetes:/default", "--config", settings)[0] == 0
    )
    yield laptop
    for lock in [
        *laptop.folder.glob("training-cloud/client/data/*.lock"),
        *laptop.folder.glob("training-cloud/direct/*/submissions/*/data/host.lock"),
    ]:
        with contextlib.suppress(ValueError, ProcessLookupError):  # of a run that did not end
            os.kill(int(lock.read_text()), signal.SIGKILL)
    for host in laptop.folder.glob("training-cloud/direct/*/submissions/*/host.json"):
        # who drives a run waits for a cluster that will not come back
        pid = json.loads(host.read_text())["pid"]
        with contextlib.suppress(OSError):
            if str(laptop.folder).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "data" / "small").mkdir(parents=True)
    for number in range(20):
        name = f"{number:03d}.bin"
        (folder / "data" / "small" / name).write_bytes(name.encode() * 100)
    (folder / "data" / "unread.bin").write_bytes(b"never" * 1000)
    (folder / "data" / "table.csv").write_text("x,y\n" * 1000)
    (folder / "train.py").write_text(TWO_RANKS)
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "words.txt").write_text("from outside")
    return folder


def sent_bytes(laptop: Laptop, run: str) -> int:
    """What the laptop has sent for a run that is over."""
    log = laptop.folder / "training-cloud" / "client" / "data" / f"{run}.log"
    told = wait_until(lambda: re.search(r"were read, (\d+) bytes sent", log.read_text()))
    return int(told[1])


def letters(laptop: Laptop) -> list[Path]:
    """Requests, answers and counts that lie in the storage."""
    found = (laptop.storage / "data").glob("*/mailboxes/**/*")
    return [each for each in found if each.is_file()]


def run_of(said: str) -> str:
    return said.partition("run ")[2].split()[0]


@pytest.mark.e2e
def test_two_pods_read_what_stays_and_each_byte_travels_once(laptop, project):
    words = ["cloud", "run", "--replicas", "2", "--all", "train.py", "../outside/words.txt"]
    code, out, said = laptop.types(*words, cwd=project)
    assert code == 0, said
    assert sorted(out.splitlines()) == [
        f"[{rank}] rank {rank} 20 1000 from outside /training/code/project/data" for rank in (0, 1)
    ]
    assert [each for each in said.splitlines() if each.startswith("model:")] == [
        "model: model.pt (7 bytes)"
    ]
    run = run_of(said)
    read = [*(project / "data" / "small").iterdir(), project / "data" / "table.csv"]
    size = sum(each.stat().st_size for each in read) + len("from outside")
    assert sent_bytes(laptop, run) == size
    store = Store(f"sqlite:///{laptop.folder}/airflow_training.db")
    [record] = store.runs()
    story = {each.event.reason: each.event for each in store.events(record.uid)}
    fetched = story["DataFetched"].data
    assert (fetched["files"], fetched["bytes"]) == (2 * 22, 2 * size), "of both pods"
    wait_until(lambda: not letters(laptop), "nothing asks any more")


@pytest.mark.soak
def test_a_later_run_takes_nothing_from_the_laptop(laptop, project):
    words = ["cloud", "run", "train.py", "../outside/words.txt"]
    assert laptop.types(*words, cwd=project)[0] == 0
    (project / "model.pt").unlink()
    code, _, said = laptop.types(*words, cwd=project)
    assert code == 0, said
    assert sent_bytes(laptop, run_of(said)) == 0


@pytest.mark.soak
def test_pods_ask_a_service_that_has_an_address(laptop, project, tmp_path):
    office = Laptop(tmp_path / "office", laptop.cluster)
    port = _free_port()
    settings = str(office.settings(address=f"http://127.0.0.1:{port}"))
    words = ["cloud", "serve", "--port", str(port), "--token", "k", "--config", settings]
    service = office.starts(*words)
    try:
        assert service.stdout is not None
        url = service.stdout.readline().strip()
        assert laptop.types("cloud", "login", "office", url, "--key", "k")[0] == 0
        code, out, said = laptop.types(
            "cloud", "run", "train.py", "../outside/words.txt", cwd=project
        )
        assert (code, out) == (0, "rank 0 20 1000 from outside /training/code/project/data\n"), said
        assert (project / "model.pt").read_bytes() == b"weights"
    finally:
        service.terminate()
        service.communicate(timeout=PATIENCE)


@pytest.mark.soak
def test_a_file_that_changes_fails_the_run_by_its_name(laptop, project, tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"
    (project / "train.py").write_text(
        "import pathlib, sys, time\n"
        f"pathlib.Path({str(begun)!r}).touch()\n"
        f"while not pathlib.Path({str(go)!r}).exists():\n    time.sleep(0.05)\n"
        "try:\n    open('data/table.csv').read()\nexcept OSError:\n    pass\n"
        "pathlib.Path('model.pt').write_bytes(b'weights')\n"
    )
    process = laptop.starts("cloud", "run", "train.py", cwd=project)
    wait_until(begun.exists, alive=lambda: process.poll() is None)
    (project / "data" / "table.csv").write_text("others")
    go.touch()
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, said
    assert "DataSourceChanged" in said
    assert f"{project}/data/table.csv" in said
    assert not (project / "model.pt").exists()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port

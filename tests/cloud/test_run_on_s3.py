"""A target whose storage is S3: code, data on demand and the model pass through it; a storage that is away is named."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.checkpoints.conftest import s3_endpoint, s3_root
from tests.cloud.test_run_on_cluster import Laptop
from tests.kubernetes.emulator import Cluster
from tests.waiting import PATIENCE

__all__ = ["s3_endpoint", "s3_root"]

pytestmark = pytest.mark.timeout(300)

SCRIPT = """
import os, pathlib
rows = pathlib.Path("data/table.csv").read_text().splitlines()
with open("data/large.bin", "rb") as file:
    file.seek(20 << 20)
    part = file.read(7)
print("rank", os.environ["TRAINING_RANK"], len(rows), part, flush=True)
pathlib.Path("model.pt").write_bytes(b"weights")
"""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(kubelet="processes") as cluster:
        yield cluster


def template(**more: str) -> dict[str, object]:
    """What gives pods the credentials of the storage."""
    names = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL")
    given = {**{name: os.environ[name] for name in names}, **more}
    env = [{"name": name, "value": value} for name, value in given.items()]
    return {"spec": {"containers": [{"name": "main", "env": env}]}}


@pytest.fixture
def laptop(cluster: Cluster, tmp_path: Path, s3_root: str) -> Iterator[Laptop]:
    laptop = Laptop(tmp_path / "laptop", cluster)
    settings = str(laptop.settings(storage=s3_root, template=template()))
    words = ["cloud", "login", "mine", "kubernetes:/default", "--config", settings]
    code, _, said = laptop.types(*words)
    assert code == 0, said
    yield laptop
    for lock in laptop.folder.glob("training-cloud/client/data/*.lock"):
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
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "table.csv").write_text("x,y\n" * 1000)
    with (folder / "data" / "large.bin").open("wb") as file:
        file.truncate(40 << 20)
        file.seek(20 << 20)
        file.write(b"twenty!")
    (folder / "train.py").write_text(SCRIPT)
    return folder


def objects(root: str) -> dict[str, int]:
    """Objects below an address, with their bytes."""
    import fsspec

    system = fsspec.filesystem("s3", skip_instance_cache=True)
    found = system.find(root.removeprefix("s3://"), detail=True)
    return {name.removeprefix(root.removeprefix("s3://") + "/"): row["size"] for name, row in found.items()}  # fmt: skip


@pytest.mark.e2e
def test_a_run_with_data_passes_through_s3_and_its_model_comes_back(laptop, project, s3_root):
    code, out, said = laptop.types("cloud", "run", "train.py", cwd=project)
    assert code == 0, said
    assert out == "rank 0 1000 b'twenty!'\n"
    assert "model: model.pt (7 bytes)" in said
    assert (project / "model.pt").read_bytes() == b"weights"
    found = objects(s3_root)
    chunks = sorted(size for name, size in found.items() if "/chunks/" in name)
    assert chunks == [4000, 256 << 10], "the table, and of the large file one range"
    assert not [name for name in found if "mailboxes/" in name], "nothing asks any more"
    assert not [name for name in found if name.startswith("probes/")]
    run = said.partition("run ")[2].split()[0]
    assert any(name.startswith(f"runs/{run}/") for name in found)
    words = ["cloud", "gc", "--target", "mine", "--unused-days", "0"]
    code, out, said = laptop.types(*words, "--dry-run")
    assert code == 0, said
    assert run in out
    assert objects(s3_root) == found
    code, out, said = laptop.types(*words)
    assert code == 0, said
    assert run in out
    left = objects(s3_root)
    assert not [name for name in left if name.startswith("runs/")]
    assert sorted(left) == sorted(name for name in found if not name.startswith("runs/"))
    assert not [*laptop.folder.glob("training-cloud/direct/mine/submissions/*/submission.json")]


@pytest.fixture
def checked_keys(s3_endpoint: str, s3_root: str) -> Iterator[None]:
    """From now on the storage lets in only whom it knows, which is nobody."""
    httpx.post(f"{s3_endpoint}/moto-api/reset-auth", content="0").raise_for_status()
    yield
    httpx.post(f"{s3_endpoint}/moto-api/reset-auth", content="inf").raise_for_status()


@pytest.mark.soak
def test_a_wrong_key_of_the_storage_is_named_before_anything_moves(
    laptop, project, s3_root, checked_keys
):
    code, _, said = laptop.types("cloud", "run", "train.py", cwd=project)
    assert code == 2, said
    assert f"storage: {s3_root} cannot be used: The AWS Access Key Id you provided" in said
    assert "AWS_ACCESS_KEY_ID" in said
    assert "then the same command again" in said


@pytest.mark.soak
def test_a_storage_that_is_away_is_named_before_anything_moves(laptop, project, s3_root):
    away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
    process = laptop.starts("cloud", "run", "train.py", cwd=project, **away)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 2, said
    assert s3_root in said
    assert "Could not connect to the endpoint URL" in said
    assert "once it answers, the same command again" in said
    assert objects(s3_root) == {}


@pytest.mark.soak
def test_a_storage_that_pods_do_not_reach_is_named_while_they_try_again(laptop, project, s3_root):
    there = template(AWS_ENDPOINT_URL="http://127.0.0.1:9")
    settings = str(laptop.settings(storage=s3_root, template=there))
    words = ["cloud", "login", "mine", "kubernetes:/default", "--config", settings]
    assert laptop.types(*words)[0] == 0
    process = laptop.starts("cloud", "run", "train.py", cwd=project)
    assert process.stderr is not None
    said = ""
    while "next try in" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    assert "the code is not here yet" in said
    assert s3_root.removeprefix("s3://") in said
    process.send_signal(signal.SIGINT)  # without a terminal it stops the run
    _, rest = process.communicate(timeout=PATIENCE)
    assert "Stopped" in rest

"""Jobs that name their code, on this machine: laid out by digest, its packages installed, its changes kept."""

from __future__ import annotations

import hashlib
import json
import sys
import zipfile
from pathlib import Path

import pytest

from airflow_training.agent.code_tree import pack_key
from airflow_training.capture import layout
from airflow_training.cloud.service.tree_storage import TreeStorage
from tests.cli.conftest import job_file

pytestmark = pytest.mark.e2e

SCRIPT = """
import os, pathlib, sys
import helper
print("executed", helper.WIDTH, os.getcwd() == os.environ["TRAINING_CODE_DIR"] + "/project", flush=True)
pathlib.Path("model.pt").write_bytes(b"weights")
"""


def storage(folder: Path, script: str = SCRIPT) -> str:
    """Put a small project into a storage; returns its tree's digest."""
    sent = folder / "sent" / "project"
    sent.mkdir(parents=True)
    (sent / "train.py").write_text(script)
    (sent / "helper.py").write_text("WIDTH = 3\n")
    tree = layout.tree_of(sent.parent)
    contents = {hashlib.sha256(p.read_bytes()).hexdigest(): p.read_bytes() for p in sent.iterdir()}
    TreeStorage(str(folder / "storage")).put(tree, contents.__getitem__)
    return tree.digest


def a_job(folder: Path, digest: str, **code: object) -> str:
    uri = str(folder / "storage")
    return str(
        job_file(
            Path("job.yaml"), ("worker", 1),
            command=[sys.executable, "train.py"], workingDir="project",
            code={"uri": uri, "digest": f"sha256:{digest}", **code}, output={"uri": f"{uri}/out"},
        )
    )  # fmt: skip


def test_the_tree_runs_and_what_it_wrote_is_in_the_output(command, tmp_path):
    path = a_job(tmp_path, storage(tmp_path))
    done = command("run", path, "--run-id", "one")
    assert done.code == 0, done.stderr
    assert "executed 3 True" in command("logs", "show", "one", "--role", "worker").stdout
    out = tmp_path / "storage/out"
    assert (out / "code/project/model.pt").read_bytes() == b"weights"
    rows = json.loads((out / "code.json").read_text())["files"]
    assert [each["path"] for each in rows] == ["project/model.pt"]


def test_a_tampered_tree_is_never_executed(command, tmp_path):
    digest = storage(tmp_path)
    pack = tmp_path / "storage" / pack_key(digest)
    pack.write_bytes(pack.read_bytes().replace(b"executed", b"tampered"))
    done = command("run", a_job(tmp_path, digest), "--run-id", "one")
    assert done.code == 1
    assert "nothing of it was executed" in done.stderr
    shown = command("logs", "show", "one", "--role", "worker").stdout
    assert "tampered 3" not in shown
    assert "executed 3" not in shown
    assert "CodeDamaged" in command("status", "one", "-o", "json").stdout


def test_a_storage_that_is_not_there_is_named(command, tmp_path):
    job = a_job(tmp_path, "0" * 64)
    done = command("run", job, "--run-id", "one", "--set", "spec.restart.maxRestarts=0")
    assert done.code == 1
    assert "the code cannot be fetched from" in done.stdout
    [instance] = command("status", "one", "-o", "json").json["instances"]
    assert f"the code cannot be fetched from {tmp_path}/storage" in instance["message"]


def test_a_package_that_is_missing_is_installed_for_the_command(command, tmp_path):
    wheel = tmp_path / "tinylib-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tinylib.py", "SIZE = 7\n")
        archive.writestr("tinylib-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tinylib\nVersion: 1.0\n")  # fmt: skip
        archive.writestr("tinylib-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")  # fmt: skip
        archive.writestr("tinylib-1.0.dist-info/RECORD", "")
    digest = storage(tmp_path, "import tinylib\nprint('size', tinylib.SIZE)\n")
    line = f"tinylib @ file://{wheel}"
    path = a_job(tmp_path, digest, packages=[line], python=sys.executable)
    done = command("run", path, "--run-id", "one")
    assert done.code == 0, done.stderr
    assert "size 7" in command("logs", "show", "one", "--role", "worker").stdout


def test_a_package_that_cannot_be_installed_is_named(command, tmp_path):
    line = f"tinylib @ file://{tmp_path}/none-1.0-py3-none-any.whl"
    path = a_job(tmp_path, storage(tmp_path), packages=[line], python=sys.executable)
    done = command("run", path, "--run-id", "one")
    assert done.code == 1
    assert "cannot be installed" in done.stderr
    assert "none-1.0" in command("logs", "show", "one", "--role", "worker").stdout


def test_a_digest_of_another_form_is_a_mistake(command, tmp_path):
    job = a_job(tmp_path, "0" * 63)
    done = command("validate", job)
    assert done.code == 2
    assert "spec.code.digest" in done.stdout + done.stderr


def test_a_storage_and_packages_of_another_form_are_mistakes(command, tmp_path):
    path = a_job(tmp_path, "0" * 64, packages=["", "--index-url http://x", "a==1\nb"], python="")
    text = Path(path).read_text().replace(str(tmp_path / "storage"), "storage", 1)
    Path(path).write_text(text)
    done = command("validate", path)
    assert done.code == 2
    for field in ("uri", "packages[0]", "packages[1]", "packages[2]", "python"):
        assert f"spec.code.{field}" in done.stdout + done.stderr

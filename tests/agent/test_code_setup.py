"""Code is made ready in a child: tried again where a storage or an index is away, and packages as pip sees them alone."""

from __future__ import annotations

import hashlib
import sys
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_training.agent import code_setup
from airflow_training.agent.code_setup import CodeSetup, packages_dirs, packages_folder
from airflow_training.agent.code_tree import lay_out_code
from airflow_training.agent.loop import Loop
from airflow_training.capture import layout
from airflow_training.cloud.service.tree_storage import TreeStorage

pytestmark = pytest.mark.e2e


class Setup:
    """A code setup with a log, run to its end."""

    def __init__(self, folder: Path, **environment: str) -> None:
        sent = folder / "sent"
        (sent / "project").mkdir(parents=True)
        (sent / "project/train.py").write_text("print(1)\n")
        self.tree = layout.tree_of(sent)
        data = (sent / "project/train.py").read_bytes()
        contents = {hashlib.sha256(data).hexdigest(): data}
        TreeStorage(str(folder / "storage")).put(self.tree, contents.__getitem__)
        self.folder = folder
        self.code = folder / "code"
        self._environment = environment

    def ends(self, **code: Any) -> tuple[str, str]:
        """Return reason and message of the failure."""
        given = {"uri": str(self.folder / "storage"), "digest": self.tree.digest, **code}
        loop = Loop([], signalled=lambda _: None)
        answers: list[tuple[str, str]] = []
        with (self.folder / "log").open("ab") as log:
            setup = CodeSetup(
                given, self.code, loop=loop, environment=self._environment, log=log.fileno()
            )
            setup.start(lambda reason, message: answers.append((reason, message)))
            while not answers:
                loop.turn()
        loop.close()
        return answers[0]

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()


def fails(times: int, error: Exception) -> Callable[..., None]:
    """`lay_out_code` that fails so often before it does what it does."""
    real, left = lay_out_code, [times]

    def lay_out(uri: str, digest: str, folder: Path) -> None:
        if left[0]:
            left[0] -= 1
            raise error
        real(uri, digest, folder)

    return lay_out


def test_a_storage_that_is_away_for_minutes_does_not_end_the_attempt(tmp_path, monkeypatch):
    assert sum(code_setup._WAITS_SECONDS) > 180
    monkeypatch.setattr(code_setup, "_WAITS_SECONDS", (0.0,) * 7)
    monkeypatch.setattr(code_setup, "lay_out_code", fails(7, ConnectionError("no route")))
    setup = Setup(tmp_path)
    assert setup.ends() == ("", "")
    assert layout.tree_of(setup.code) == setup.tree
    assert setup.log.count("the code is not here yet: ConnectionError('no route')") == 7


def test_a_failure_of_many_words_is_told_and_waits_for_no_reader(tmp_path, monkeypatch):
    monkeypatch.setattr(code_setup, "lay_out_code", fails(1, ValueError("x" * 1_000_000)))
    reason, message = Setup(tmp_path).ends()
    assert reason == "CodeFailed"
    assert len(message) == 2000


def wheel(folder: Path, name: str, **files: str) -> Path:
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        for each, text in files.items():
            archive.writestr(f"shared/{each}.py", text)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")  # fmt: skip
        archive.writestr(f"{info}/RECORD", "")
    return path


def test_packages_with_and_without_a_hash_share_a_namespace(tmp_path):
    one, two = wheel(tmp_path, "one", first="A = 1\n"), wheel(tmp_path, "two", second="B = 2\n")
    digest = hashlib.sha256(one.read_bytes()).hexdigest()
    lines = [f"one @ file://{one} --hash=sha256:{digest}", f"two @ file://{two}"]
    setup = Setup(tmp_path)
    assert setup.ends(packages=lines, python=sys.executable) == ("", "")
    found = [
        each.name for folder in packages_dirs(setup.code) for each in folder.glob("shared/*.py")
    ]
    assert sorted(found) == ["first.py", "second.py"]


def test_packages_that_were_installed_once_are_unpacked_where_they_would_be_installed(tmp_path):
    made = tmp_path / "made/unhashed/shared"
    made.mkdir(parents=True)
    (made / "first.py").write_text("A = 1\n")
    archive = tmp_path / "storage/environments/one.tar"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w") as tar:
        tar.add(tmp_path / "made/unhashed", "unhashed")
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    setup = Setup(tmp_path)
    given = {"path": "environments/one.tar", "digest": f"sha256:{digest}"}
    for _ in range(2):  # another attempt finds what one before has left
        assert setup.ends(archive=given) == ("", "")
        assert (packages_dirs(setup.code)[1] / "shared/first.py").read_text() == "A = 1\n"
    archive.write_bytes(archive.read_bytes() + b"more")
    reason, message = setup.ends(archive=given)
    assert reason == "CodeDamaged"
    assert "environments/one.tar" in message
    assert not packages_folder(setup.code).exists()


def test_an_installer_imports_nothing_of_the_code(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "pip.py").write_text("raise SystemExit('not pip')\n")
    setup = Setup(tmp_path, PYTHONPATH=str(own))
    line = f"one @ file://{wheel(tmp_path, 'one', first='')}"
    assert setup.ends(packages=[line], python=sys.executable) == ("", "")


def test_an_index_that_is_away_is_asked_again_and_is_no_mistake_of_the_job(tmp_path, monkeypatch):
    monkeypatch.setattr(code_setup, "_INDEX_WAITS_SECONDS", (0.0, 0.0))
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho called >> $0.calls\necho Connection refused\nexit 1\n")
    python.chmod(0o755)
    reason, message = Setup(tmp_path).ends(packages=["one==1.0"], python=str(python))
    assert reason == "CodeFailed"
    assert "Connection refused" in message
    assert (tmp_path / "python.calls").read_text() == "called\n" * 3


def test_of_an_installers_words_the_errors_are_told_and_the_rest_is_in_the_log(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(code_setup, "_INDEX_WAITS_SECONDS", (0.0,))
    python = tmp_path / "python"
    warning, error = "WARNING: Retrying after connection broken", "ERROR: No matching distribution"
    python.write_text(f"#!/bin/sh\necho '{warning}'\necho '{error}'\nexit 1\n")
    python.chmod(0o755)
    setup = Setup(tmp_path)
    reason, message = setup.ends(packages=["one==1.0"], python=str(python))
    told = f"what the image lacks cannot be installed: {error}"
    assert (reason, message) == ("CodeFailed", told)
    assert f"the code is not here yet: {told}; next try in" in setup.log
    assert warning in setup.log

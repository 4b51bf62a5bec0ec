"""Named environments come from a storage without any index: added once, each file read once, every byte checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.checkpoints.store import LocalStore
from airflow_training.environments import catalogue_here, record
from airflow_training.environments.model import PythonEnvironment
from airflow_training.environments.storage import (
    add,
    delete_unused_files,
    fetch,
    list_all,
    load,
    remove_named,
)
from airflow_training.errors import InputError
from tests.environments.conftest import look_only_in, write_wheels
from tests.environments.records import dist, with_dist
from tests.environments.wheels import write_wheel

(HERE,) = catalogue_here().images
BARE = replace(HERE.record, distributions=[])
TINY = with_dist(BARE, dist("tinyone", "1.0"), dist("tinytwo", "2.0"))


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a storage with `tiny@1`."""
    folder = tmp_path_factory.mktemp("storage")
    with pytest.MonkeyPatch.context() as patch:
        look_only_in(write_wheels(folder / "wheels"), folder / "uv", patch)
        add(LocalStore(folder / "store"), "tiny@1", TINY, sys.executable)
    return folder / "store"


@pytest.fixture
def store(added: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalStore:
    """A storage with `tiny@1`, where nothing looks for packages anywhere else."""
    shutil.copytree(added, tmp_path / "store")
    look_only_in(tmp_path / "nothing", tmp_path / "uv", monkeypatch)
    return LocalStore(tmp_path / "store")


def test_it_is_fetched_without_an_index(store: LocalStore, tmp_path: Path):
    found = fetch(store, "tiny@1", HERE, tmp_path / "cache")
    assert (list(found.installed), found.cached) == (["tinyone==1.0", "tinytwo==2.0"], False)
    code = "import tinyone, tinytwo; print(tinyone.__version__, tinytwo.__version__)"
    done = subprocess.run([found.python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "1.0 2.0\n"
    assert fetch(store, "tiny@1", HERE, tmp_path / "cache").cached


class CountingStore(LocalStore):
    """Counts how often each file is read."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []

    def read(self, key: str, start: int = 0, size: int | None = None) -> bytes:
        if key.startswith("files/"):
            self.reads.append(key)
        return super().read(key, start, size)


def test_twenty_that_fetch_at_once_read_each_file_once(store: LocalStore, tmp_path: Path):
    counting = CountingStore(tmp_path / "store")
    with ThreadPoolExecutor(20) as pool:
        asked = [pool.submit(fetch, counting, "tiny@1", HERE, tmp_path / "cache") for _ in range(20)]  # fmt: skip
        found = [each.result() for each in asked]
    assert sorted(each.cached for each in found) == [False] + [True] * 19
    assert sorted(counting.reads) == sorted(file.key for file in load(store, "tiny@1").files)


def test_files_that_were_read_before_a_kill_are_not_read_again(store: LocalStore, tmp_path: Path):
    first, second = load(store, "tiny@1").files
    kept = tmp_path / "cache" / "files" / first.sha256 / first.name
    kept.parent.mkdir(parents=True)
    kept.write_bytes(store.read(first.key))
    (kept.parent / ".part-x").write_bytes(b"half")
    counting = CountingStore(tmp_path / "store")
    fetch(counting, "tiny@1", HERE, tmp_path / "cache")
    assert counting.reads == [second.key]


@pytest.mark.parametrize("place", ["storage", "cache"])
def test_changed_bytes_are_never_installed(store: LocalStore, tmp_path: Path, place: str):
    file = load(store, "tiny@1").files[0]
    path = tmp_path / "store" / file.key
    whole = path.read_bytes()
    if place == "cache":
        path = tmp_path / "cache" / "files" / file.sha256 / file.name
        path.parent.mkdir(parents=True)
    path.write_bytes(whole[:50] + bytes([whole[50] ^ 1]) + whole[51:])
    if place == "cache":  # read again from where it is whole
        assert not fetch(store, "tiny@1", HERE, tmp_path / "cache").cached
        return
    with pytest.raises(InputError, match="is damaged in the storage") as refused:
        fetch(store, "tiny@1", HERE, tmp_path / "cache")
    assert refused.value.problems[0].field == file.name


def test_a_version_never_changes(
    store: LocalStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    look_only_in(wheels, tmp_path / "uv", monkeypatch)
    assert add(store, "tiny@1", TINY, sys.executable).digest == load(store, "tiny@1").digest
    with pytest.raises(InputError, match="versions never change"):
        add(store, "tiny@1", with_dist(TINY, dist("tinyone", "1.1")), sys.executable)
    add(store, "tiny@2", with_dist(TINY, dist("tinyone", "1.1")), sys.executable)
    assert [each.title for each in list_all(store)] == ["tiny@1", "tiny@2"]


def test_files_go_with_the_last_version_that_has_them(
    store: LocalStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    look_only_in(wheels, tmp_path / "uv", monkeypatch)
    add(store, "tiny@2", with_dist(TINY, dist("tinyone", "1.1")), sys.executable)
    remove_named(store, "tiny@1")
    store.create("files/notes/mine-1-py3-none-any.whl", b"of somebody else")
    store.create(f"files/{'0' * 64}/data.csv", b"of somebody else")
    (gone,) = delete_unused_files(store)
    assert gone.endswith("/tinyone-1.0-py3-none-any.whl")
    with pytest.raises(InputError, match="is not there") as refused:
        load(store, "tiny@1")
    assert refused.value.problems[0].allowed == ["tiny@2"]


@pytest.mark.parametrize(
    ("image", "name"),
    [
        (replace(BARE, python="3.9.1"), "python"),
        (replace(BARE, machine="riscv64"), "platform"),
        (replace(BARE, implementation="pypy"), "implementation"),
    ],
)
def test_another_python_than_its_files_are_for_is_refused(
    store: LocalStore, tmp_path: Path, image: PythonEnvironment, name: str
):
    with pytest.raises(InputError) as refused:
        fetch(store, "tiny@1", replace(HERE, record=image), tmp_path / "cache")
    assert [each.field for each in refused.value.problems] == [name]


def test_what_no_index_has_is_refused_by_name(store: LocalStore):
    place: dict[str, Any] = {"origin": "folder", "url": "file:///home/user/mine"}
    with pytest.raises(InputError, match="mine: is installed from a folder"):
        add(store, "mine@1", with_dist(BARE, dist("mine", "1", **place)), sys.executable)


@pytest.mark.parametrize("version", ["3.8", "3.12", "3.13"])
def test_other_interpreters_are_asked(version: str):
    found = next(
        (
            path
            for path in Path("~/.pyenv/versions").expanduser().glob(f"{version}.*/bin/python")
            if os.access(path, os.X_OK)
        ),
        None,
    )
    if found is None:
        pytest.skip(f"this machine has no Python {version}")
    asked = record(found)
    assert (asked.minor, asked.system) == (version, HERE.record.system)
    assert "pip" in asked.by_name


def test_what_is_no_python_is_named(tmp_path: Path):
    with pytest.raises(InputError, match="does not say what it has installed"):
        record(tmp_path / "python")


def test_a_document_of_another_name_is_refused(store: LocalStore):
    store.create("other/1.json", store.read("tiny/1.json"))
    with pytest.raises(InputError, match=r"its document is that of tiny@1"):
        load(store, "other@1")


def test_this_package_is_in_it_where_an_index_has_it(
    store: LocalStore, wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    look_only_in(wheels, tmp_path / "uv", monkeypatch)
    write_wheel(wheels, "airflow_training", "9.9")
    with_tools = with_dist(TINY, dist("airflow-training", "9.9"))
    added = add(store, "tools@1", with_tools, sys.executable)
    assert "airflow_training-9.9-py3-none-any.whl" in [file.name for file in added.files]
    place: dict[str, Any] = {"origin": "editable", "url": "file:///home/user/mine"}
    sources = with_dist(TINY, dist("airflow-training", "9.9", **place))
    assert len(add(store, "tools@2", sources, sys.executable).files) == 2

"""What every store does: one suite for local files, memory and S3."""

from __future__ import annotations

import errno
import os
import random
import sys
import uuid
from pathlib import Path

import pytest

from airflow_training.checkpoints.errors import KeyExists, StoreRefused
from airflow_training.checkpoints.store import (
    LocalStore,
    ObjectStore,
    RemoteStore,
    open_store,
    probe,
)
from tests.checkpoints.stores import DictStore, Forgetful, Overwriting


@pytest.fixture(params=["local", "without-links", "file", "memory", "s3"])
def store(request, tmp_path, monkeypatch) -> ObjectStore:
    if request.param == "memory":
        return open_store(f"memory://{uuid.uuid4().hex}/runs")
    if request.param == "s3":
        return open_store(request.getfixturevalue("s3_root"))
    if request.param == "file":
        return open_store(f"file://{tmp_path}/with%20space")
    if request.param == "without-links":
        _forbid_links(monkeypatch)
    return open_store(str(tmp_path / "root"))


def _forbid_links(monkeypatch) -> None:
    def link(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)


def test_what_was_created_is_read(store):
    store.create("shards/ab/one", [b"some", memoryview(b"thing")])
    assert store.read("shards/ab/one") == b"something"
    assert store.read("shards/ab/one", 4, 3) == b"thi"
    assert store.size("shards/ab/one") == 9


def test_a_key_is_created_once(store):
    store.create("a/b", b"first")
    with pytest.raises(KeyExists):
        store.create("a/b", b"second")
    assert store.read("a/b") == b"first"
    assert store.list("") == [("a/b", 5)]


def test_a_list_shows_what_is_below_a_folder(store):
    for key in ("markers/2/1", "markers/2/0", "markers/1/0", "manifests/1"):
        store.create(key, b"12")
    assert store.list("markers/2/") == [("markers/2/0", 2), ("markers/2/1", 2)]
    assert [key for key, _ in store.list("")] == [
        "manifests/1", "markers/1/0", "markers/2/0", "markers/2/1",
    ]  # fmt: skip
    assert store.list("shards/") == []


def test_what_is_not_there_is_said_alike(store):
    for ask in (store.read, store.size):
        with pytest.raises(FileNotFoundError):
            ask("no/such")
    store.delete("no/such")


def test_what_was_deleted_can_be_created_again(store):
    store.create("a/b", b"first")
    store.delete("a/b")
    assert store.list("") == []
    store.create("a/b", b"second")
    assert store.read("a/b") == b"second"


def test_each_real_store_creates_a_key_once_and_the_probe_leaves_nothing(store):
    assert probe(store) is True
    assert store.list("") == []


def test_a_store_that_overwrites_is_recognised():
    store = Overwriting()
    assert probe(store) is False
    assert store.objects == {}


def test_a_store_that_does_not_show_what_was_written_is_refused():
    with pytest.raises(StoreRefused, match="does not show what was just written"):
        probe(Forgetful())


def test_a_store_that_only_looks_before_it_writes_is_recognised():
    """As drivers without create-only writes do: two at once both find nothing there."""

    class Racy(DictStore):
        def create(self, key, data):
            if key in self.objects:
                raise KeyExists(key)
            arrived.append(key)
            while arrived.count(key) < 2 and key.endswith("at-once"):
                pass
            self.objects[key] = bytes(data)

    arrived: list[str] = []
    assert probe(Racy()) is False


def test_a_folder_that_cannot_be_written_is_refused_with_its_reason(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreRefused, match=r"cannot keep checkpoints.*Not a directory"):
        probe(open_store(str(tmp_path / "file" / "root")))


def test_an_unknown_address_is_refused():
    with pytest.raises(StoreRefused, match="nosuch://"):
        open_store("nosuch://bucket/folder")


def test_a_missing_driver_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "gcsfs", None)
    with pytest.raises(StoreRefused, match="gcsfs"):
        open_store("gs://bucket/folder")


@pytest.mark.e2e
def test_a_bucket_that_does_not_exist_is_refused(s3_root):
    with pytest.raises(StoreRefused, match="cannot keep checkpoints"):
        probe(open_store("s3://no-such-bucket-here/runs"))


@pytest.fixture
def just_imported(monkeypatch) -> None:
    """Have clients of S3 draw as they do before any store is opened."""
    from botocore import retryhandler
    from botocore.retries.standard import ExponentialBackoff

    defaults = ExponentialBackoff.__init__.__defaults__
    as_imported = tuple(random.random if callable(each) else each for each in defaults)
    monkeypatch.setattr(ExponentialBackoff.__init__, "__defaults__", as_imported)
    monkeypatch.setattr(retryhandler, "random", random)


def test_pauses_of_clients_take_no_random_number_of_the_training(just_imported):
    from botocore import retryhandler
    from botocore.retries.standard import ExponentialBackoff, RetryContext

    before = random.getstate()
    open_store("s3://bucket/runs")
    assert 0 <= retryhandler.delay_exponential("rand", 2, 1) <= 1
    assert {*random.__all__} <= {*vars(retryhandler.random)}  # Azure's client calls `random.Random`
    assert 0 <= ExponentialBackoff().delay_amount(RetryContext(attempt_number=1)) <= 1
    assert random.getstate() == before


@pytest.mark.e2e
@pytest.mark.parametrize("mode", ["legacy", "standard"])
def test_a_request_that_is_repeated_takes_no_random_number_of_the_training(
    mode, just_imported, s3_root, monkeypatch
):
    from moto.s3.models import S3Backend

    failures: list[KeyError] = []
    list_objects = S3Backend.list_objects_v2

    def fail_once(*args, **kwargs):
        if not failures:
            failures.append(KeyError("gone meanwhile"))
            raise failures[0]
        return list_objects(*args, **kwargs)

    monkeypatch.setattr(S3Backend, "list_objects_v2", fail_once)
    monkeypatch.setenv("AWS_RETRY_MODE", mode)
    store = open_store(s3_root)
    before = random.getstate()
    assert store.list("") == []
    assert failures
    assert random.getstate() == before


def test_errors_of_a_driver_come_out_as_os_errors(tmp_path):
    class Strange:
        def cat_file(self, *_: object, **__: object) -> bytes:
            raise RuntimeError("the connection was reset")

    store = RemoteStore(f"memory://{tmp_path.name}")
    store._filesystem = Strange()
    with pytest.raises(OSError, match="RuntimeError: the connection was reset"):
        store.read("a")


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def fsync(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store = LocalStore(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="No space"):
        store.create("a", b"1")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_killed_writer_leaves_no_object_and_its_rest_is_cleared(tmp_path):
    store = LocalStore(tmp_path)
    store.create("a/b", b"1")
    (tmp_path / ".unfinished" / "rest").write_bytes(b"half")
    assert store.list("a/") == [("a/b", 1)]
    assert store.list("") == [("a/b", 1)]
    store.clear_unfinished()
    assert list((tmp_path / ".unfinished").iterdir()) == []


def test_a_relative_path_means_the_folder_it_meant_at_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = open_store("root")
    monkeypatch.chdir("/")
    store.create("a", b"1")
    assert Path(tmp_path, "root", "a").read_bytes() == b"1"

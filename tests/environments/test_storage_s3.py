"""Named environments behind a real S3 API: added, listed, fetched, removed and collected; writers at once, broken connections, no rights."""

from __future__ import annotations

import random
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import fsspec
import pytest

from airflow_training.checkpoints.store import open_address, open_store
from airflow_training.environments import catalogue_here
from airflow_training.environments.storage import add, fetch, list_all, load
from airflow_training.errors import InputError
from tests.checkpoints.conftest import s3_endpoint, s3_root
from tests.cli.conftest import home, typed
from tests.environments.conftest import look_only_in, write_wheels
from tests.environments.narrow_door import NarrowDoor
from tests.environments.records import dist, with_dist
from tests.environments.wheels import write_wheel

__all__ = ["home", "s3_endpoint", "s3_root", "typed"]

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(540)]

(HERE,) = catalogue_here().images
BARE = replace(HERE.record, distributions=[])
NOISE = random.Random(0).randbytes(1 << 20).hex()
"""What does not become small when it is packed."""
TINY = with_dist(BARE, dist("tinyone", "1.0"), dist("tinytwo", "2.0"))


@pytest.fixture
def address(s3_root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of an empty storage, where wheels to add are found."""
    look_only_in(write_wheels(tmp_path / "wheels"), tmp_path / "uv", monkeypatch)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return f"{s3_root}/environments"


def test_one_lives_in_a_bucket_from_add_to_gc(address, home, typed, tmp_path):
    store = open_store(address)
    add(store, "tiny@1", TINY, sys.executable)
    assert typed("environments", "list", "--at", address, "-o", "json").json
    shown = typed("environments", "show", "tiny@1", "--at", address, "-o", "json")
    assert shown.code == 0, shown
    cache = tmp_path / "cache" / "airflow-training" / "environments"
    found = fetch(store, "tiny@1", HERE, cache)
    assert list(found.installed) == ["tinyone==1.0", "tinytwo==2.0"]
    assert fetch(store, "tiny@1", HERE, cache).cached
    fetched = typed("environments", "fetch", "tiny@1", "--at", address, "-o", "json")
    assert (fetched.code, fetched.json["cached"]) == (0, True)
    assert typed("environments", "pin", found.digest[:12]).code == 0
    assert typed("environments", "gc", "--unused-days", "0").code == 0
    assert Path(found.python).exists()  # it is pinned
    assert typed("environments", "remove", "tiny@1", "--at", address).code == 0
    assert list_all(store) == []
    assert [key for key, _ in store.list("files")]  # others might have them
    assert typed("environments", "gc", "--at", address).code == 0
    assert store.list("files") == []


def test_of_two_that_add_one_version_at_once_one_wins_and_the_other_is_told(address, tmp_path):
    other = with_dist(BARE, dist("tinyone", "1.1"))
    with ThreadPoolExecutor(8) as pool:
        same = [
            pool.submit(add, open_store(address), "tiny@1", TINY, sys.executable) for _ in range(4)
        ]
        others = [
            pool.submit(add, open_store(address), "tiny@1", other, sys.executable) for _ in range(4)
        ]
        ended = [each.exception() for each in (*same, *others)]
    won, lost = (ended[:4], ended[4:]) if ended[0] is None else (ended[4:], ended[:4])
    assert won == [None] * 4  # the same content is the same version
    assert all(isinstance(each, InputError) for each in lost)
    assert all("is there already, with other content" in str(each) for each in lost)
    store = open_store(address)
    assert load(store, "tiny@1").title == "tiny@1"
    assert fetch(store, "tiny@1", HERE, tmp_path / "cache").installed


def test_a_connection_that_breaks_leaves_nothing_half_and_the_next_try_has_it(
    address, s3_endpoint, tmp_path, monkeypatch
):
    write_wheel(tmp_path / "wheels", "tinyone", "3.0", {"big.py": f"X = '{NOISE}'\n"})
    add(open_store(address), "tiny@1", with_dist(BARE, dist("tinyone", "3.0")), sys.executable)
    with NarrowDoor(s3_endpoint, after=1 << 19) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", door.address)
        forget_storages()
        with pytest.raises(OSError, match="bucket-"):
            fetch(open_store(address), "tiny@1", HERE, tmp_path / "cache")
        assert door.cut
        assert [*(tmp_path / "cache").glob("*/environment.json")] == []
        assert [each for each in (tmp_path / "cache" / "files").rglob("*") if each.is_file()] == []
        door.is_open = True
        found = fetch(open_store(address), "tiny@1", HERE, tmp_path / "cache")
    assert list(found.installed) == ["tinyone==3.0"]


@pytest.fixture
def closed(address, s3_endpoint, monkeypatch) -> Iterator[str]:
    """The address of a storage whose server does not know our key."""
    add(open_store(address), "tiny@1", TINY, sys.executable)
    forget_storages()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "wrong")
    authenticate(s3_endpoint, after="0")
    yield address
    authenticate(s3_endpoint, after="Infinity")
    forget_storages()


@pytest.mark.parametrize(
    "words",
    [("list",), ("show", "tiny@1"), ("fetch", "tiny@1"), ("remove", "tiny@1"), ("gc",)],
)
def test_a_storage_that_knows_us_not_is_told_in_a_sentence(closed, home, typed, words):
    answer = typed("environments", *words, "--at", closed)
    assert answer.code == 1
    (line,) = answer.stderr.strip().splitlines()
    assert closed in line
    assert (
        "does not exist in our records" in line or "Forbidden" in line
    )  # as the request is answered


def authenticate(endpoint: str, *, after: str) -> None:
    """Let the server ask for a known key after so many requests."""
    headers = {"Content-Type": "text/plain"}
    asked = urllib.request.Request(
        f"{endpoint}/moto-api/reset-auth", data=after.encode(), headers=headers
    )
    urllib.request.urlopen(asked).read()


def forget_storages() -> None:
    """Let the next one that is opened see the variables as they are now."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()


def test_a_revision_is_another_one_once_bytes_of_the_same_size_were_written(tmp_path, s3_root):
    for store in (open_address(str(tmp_path)), open_address(s3_root)):
        store.create("a", b"one")
        size, first = store.revision("a")
        assert (size, bool(first)) == (3, True)
        assert store.revision("a") == (3, first)
        store.delete("a")
        store.create("a", b"two")
        assert store.revision("a") != (3, first)
        with pytest.raises(FileNotFoundError):
            store.revision("b")


def test_what_a_driver_refuses_says_where(s3_root, monkeypatch):
    store = open_address(s3_root)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("Forbidden")

    monkeypatch.setattr(store._filesystem, "info", refuse)
    with pytest.raises(PermissionError) as told:
        store.revision("a")
    assert (told.value.filename, told.value.strerror) == (s3_root, "Forbidden")

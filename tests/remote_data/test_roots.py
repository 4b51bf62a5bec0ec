"""What the sharing machine shows, and all that it never gives away."""

from __future__ import annotations

import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_training.errors import InputError
from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data.chunks import CHUNK_BYTES, digest_of_chunk
from airflow_training.remote_data.errors import DataNotShared, SourceChanged
from airflow_training.remote_data.known_digests import KnownDigests
from airflow_training.remote_data.manifest import DataManifest
from airflow_training.remote_data.roots import SharedRoots, share


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "train" / "empty").mkdir(parents=True)
    (folder / "train" / "a.bin").write_bytes(b"a" * 10)
    (folder / "train" / "b.bin").write_bytes(b"b" * 20)
    (folder / ".env").write_text("PASSWORD=1")
    (folder / "key.pem").write_text("-")
    (tmp_path / "outside.txt").write_text("outside")
    (folder / "out").symlink_to(tmp_path / "outside.txt")
    (folder / "up").symlink_to("..")
    (folder / "secret").symlink_to(".env")
    (folder / "in").symlink_to("train/a.bin")
    os.mkfifo(folder / "fifo")
    return folder


def names(root):
    return [each.path for each in root.files]


def test_a_folder_is_shown_with_sizes_and_times_and_without_secrets_and_ways_out(data):
    manifest = share([data]).manifest
    (root,) = manifest.roots
    assert names(root) == ["train/a.bin", "train/b.bin"]
    assert [each.size for each in root.files] == [10, 20]
    assert root.files[0].mtime_ns == (data / "train" / "a.bin").stat().st_mtime_ns
    assert root.folders == ["train", "train/empty"]
    assert root.links == {"in": "train/a.bin"}
    told = {Path(each.path).name: each.reason for each in manifest.omissions}
    assert told == {
        ".env": "looks like a secret",
        "key.pem": "looks like a secret",
        "out": "a link that leads out",
        "up": "a link that leads out",
        "secret": "a link that leads out",
        "fifo": "no file and no folder",
    }
    assert DataManifest.from_json(json.loads(json.dumps(manifest.to_json()))).size == 30


def test_a_file_alone_is_shown_alone(data):
    (root,) = share([data / "train" / "a.bin"]).manifest.roots
    assert (root.path, names(root)) == (str(data / "train"), ["a.bin"])


def test_what_lies_in_a_shared_folder_is_not_shared_twice(data):
    manifest = share([data / "train" / "a.bin", data, data / "train"]).manifest
    assert [root.path for root in manifest.roots] == [str(data)]


@pytest.mark.parametrize("name", ["key.pem", ".env", "missing", "fifo", "in", "out", "secret"])
def test_what_cannot_be_shared_is_refused_by_its_name(data, name):
    with pytest.raises(InputError, match=name):
        share([data / name])


@pytest.mark.parametrize(
    ("root", "path"),
    [
        ("data0", ".env"), ("data0", "out"), ("data0", "up/outside.txt"), ("data0", "../outside.txt"), ("data0", "in"),
        ("data0", "/etc/passwd"), ("data0", "train/../.env"), ("data0", "train//a.bin"), ("data1", "train/a.bin"),
        ("", ""), ("data0", ""), ("data0", "train"), ("data0", "train/a.bin\0"), ("data0", "train\\a.bin"),
    ],
)  # fmt: skip
def test_nothing_but_files_of_the_manifest_can_be_asked_for(data, root, path):
    shared = share([data])
    with pytest.raises(DataNotShared):
        shared.digests(root, path)
    with pytest.raises(DataNotShared):
        shared.chunk(root, path, 0)


def test_no_path_of_many_leads_out(data):
    shared = share([data])
    dice = random.Random(16)
    parts = [
        "..",
        ".",
        "",
        "train",
        "out",
        "up",
        ".env",
        "a.bin",
        "~",
        "%2e%2e",
        "outside.txt",
        "\0",
    ]
    for _ in range(2000):
        path = "/".join(dice.choices(parts, k=dice.randint(1, 6)))
        if path != "train/a.bin":
            with pytest.raises(DataNotShared):
                shared.digests("data0", path)


def test_a_folder_that_became_a_link_leads_nowhere(data, tmp_path):
    shared = share([data])
    (data / "train").rename(tmp_path / "moved")
    (data / "train").symlink_to(tmp_path / "moved")
    with pytest.raises(DataNotShared, match=r"train/a\.bin"):
        shared.digests("data0", "train/a.bin")


def test_a_file_that_became_a_link_leads_nowhere(data, tmp_path):
    shared = share([data])
    (data / "train" / "a.bin").unlink()
    (data / "train" / "a.bin").symlink_to(tmp_path / "outside.txt")
    with pytest.raises(DataNotShared, match=r"train/a\.bin"):
        shared.chunk("data0", "train/a.bin", 0)


def grow(path):
    path.write_bytes(b"a" * 11)


def touch(path):
    os.utime(path, ns=(1, 1))


def remove(path):
    path.unlink()


@pytest.mark.parametrize("change", [grow, touch, remove])
@pytest.mark.parametrize("digested", [False, True])
def test_a_source_that_changed_is_named(data, change, digested):
    shared = share([data])
    if digested:
        shared.digests("data0", "train/a.bin")
    change(data / "train" / "a.bin")
    with pytest.raises(SourceChanged, match=r"train/a\.bin"):
        shared.chunk("data0", "train/a.bin", 0)


def test_content_that_changed_at_the_same_size_and_time_is_named(data):
    shared = share([data])
    path = data / "train" / "a.bin"
    shared.digests("data0", "train/a.bin")
    before = path.stat()
    path.write_bytes(b"x" * 10)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.raises(SourceChanged, match=r"train/a\.bin"):
        shared.chunk("data0", "train/a.bin", 0)


def replaced(path, at, content):
    """Other content at the same size and time, as a tool that restores times leaves it."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_a_range_of_content_that_is_not_what_an_earlier_run_has_read_is_named(data):
    path = data / "big"
    path.write_bytes(bytes(2 * CHUNK_BYTES))
    chunks = share([data]).digests("data0", "big")
    found = share([data]).manifest
    root = found.roots[0]
    files = [replace(each, chunks=chunks if each.path == "big" else ()) for each in root.files]
    shared = SharedRoots(replace(found, roots=[replace(root, files=files)]))
    shared.digests("data0", "big", 0)
    replaced(path, CHUNK_BYTES + 5 * RANGE_BYTES, b"other")
    with pytest.raises(SourceChanged, match="big: its content is not what it was"):
        shared.digests("data0", "big", CHUNK_BYTES // RANGE_BYTES)  # of the same chunk


def test_a_range_that_changed_after_its_chunk_was_looked_at_is_named(data):
    path = data / "big"
    path.write_bytes(bytes(CHUNK_BYTES))
    shared = share([data])
    shared.digests("data0", "big", 0)
    replaced(path, 5 * RANGE_BYTES, b"other")
    with pytest.raises(SourceChanged, match="big: its content has changed during the run"):
        shared.chunk("data0", "big", 0, 5)


def test_the_sharing_machine_keeps_the_digests_and_what_travels_has_none(data):
    manifest = share([data]).manifest
    root = manifest.roots[0]
    known = replace(manifest, roots=[replace(root, files=[replace(root.files[0], chunks=["d"])])])
    kept = DataManifest.from_bytes(
        known.to_bytes(with_digests=True), source="run", with_digests=True
    )
    assert [list(each.chunks) for each in kept.roots[0].files] == [["d"]]
    earlier = DataManifest.from_bytes(known.to_bytes(), source="run", with_digests=True)
    assert [each.chunks for root in earlier.roots for each in root.files] == [()]
    sent = DataManifest.from_bytes(known.to_bytes(), source="run")
    assert [list(each.chunks) for each in sent.roots[0].files] == [[]]


def test_chunks_are_parts_of_the_file(data):
    content = random.Random(1).randbytes(CHUNK_BYTES + 1000)
    (data / "big").write_bytes(content)
    shared = share([data])
    digests = shared.digests("data0", "big")
    chunks = [shared.chunk("data0", "big", index) for index in range(2)]
    assert b"".join(chunks) == content
    assert [digest_of_chunk(each) for each in chunks] == digests


def test_digests_are_remembered_as_long_as_nothing_about_the_file_changes(
    data, tmp_path, monkeypatch
):
    path = data / "train" / "a.bin"
    monkeypatch.setattr("time.time_ns", lambda: path.stat().st_ctime_ns + 10**10)
    share([data], known=KnownDigests(tmp_path / "known")).digests("data0", "train/a.bin")

    def chunks():
        root = share([data], known=KnownDigests(tmp_path / "known")).manifest.roots[0]
        return {each.path: list(each.chunks) for each in root.files}

    assert chunks() == {"train/a.bin": [digest_of_chunk(b"a" * 10)], "train/b.bin": []}
    before = path.stat()
    path.write_bytes(b"x" * 10)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert chunks()["train/a.bin"] == []


def test_digests_of_a_file_that_was_just_written_are_not_remembered(data, tmp_path):
    share([data], known=KnownDigests(tmp_path / "known")).digests("data0", "train/a.bin")
    root = share([data], known=KnownDigests(tmp_path / "known")).manifest.roots[0]
    assert [list(each.chunks) for each in root.files] == [[], []]

"""Of a large file that a program reads at random only the ranges come that it reads, and no reader sees another byte."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import uuid
import zipfile
from pathlib import Path

import pytest

from airflow_training.checkpoints.store import open_store
from airflow_training.interception.protocol import RANGE_BYTES
from airflow_training.remote_data import (
    http_address,
    instance_environment,
    mailbox_address,
    share,
    start_fetcher,
    start_mailbox,
    start_server,
)
from airflow_training.remote_data.chunks import CHUNK_BYTES, RANGED_FROM_BYTES
from airflow_training.remote_data.errors import DataError, DataNotShared, SourceChanged
from airflow_training.remote_data.mailbox import Mailbox, MailboxSource, asked_in
from airflow_training.remote_data.roots import SharedRoots

pytestmark = pytest.mark.e2e
SIZE = RANGED_FROM_BYTES + 3 * RANGE_BYTES + 77
AT_RANDOM = """
import hashlib, json, sys
found = []
with open("data/large.bin", "rb") as file:
    for place, size in json.loads(sys.argv[1]):
        file.seek(place)
        found.append(hashlib.sha256(file.read(size)).hexdigest())
print(json.dumps(found))
"""


class WholeFilesOnly(SharedRoots):
    """A sharing machine of a version before ranges: it looks at root, path and index."""

    def digests(self, root, path, part=None):
        return super().digests(root, path)

    def chunk(self, root, path, index, part=None):
        return super().chunk(root, path, index)


@pytest.fixture
def large(tmp_path):
    path = tmp_path / "laptop/large.bin"
    path.parent.mkdir()
    path.write_bytes(random.Random(4).randbytes(SIZE))
    return path


@pytest.fixture
def node(tmp_path, large):
    """Starts a server and fetchers, and ends them."""
    ends = []

    def start(name="node", shared=None, **more):
        shared = shared or share([large.parent])
        server = start_server(shared)
        ends.append(server.close)
        settings = {
            "places": {"data0": tmp_path / name / "data"},
            "state": tmp_path / name / "state",
            "source": http_address(server.url, server.token),
            "cache": str(tmp_path / "cache"),
            **more,
        }
        fetcher = start_fetcher(shared.manifest, **settings)
        ends.append(lambda: end(fetcher))
        return fetcher

    yield start
    for each in reversed(ends):
        each()


def end(fetcher):
    try:
        fetcher.finish()
    except DataError:  # what a test is about was told before
        return


def run(fetcher, script, *args, folder=None):
    told = instance_environment(fetcher, python_path=str(Path(__file__).parents[2]))
    done = subprocess.run(
        [sys.executable, "-c", script, *args],
        cwd=folder or fetcher.state.parent,
        env={**os.environ, **told},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def read_at_random(fetcher, large, places):
    found = json.loads(run(fetcher, AT_RANDOM, json.dumps(places)))
    content = large.read_bytes()
    assert found == [hashlib.sha256(content[a : a + n]).hexdigest() for a, n in places]


def test_random_reads_bring_their_ranges_and_nothing_else(node, large):
    fetcher = node()
    places = [(9 * RANGE_BYTES + 5, 1000), (100 * RANGE_BYTES - 10, 20), (SIZE - 30, 100)]
    read_at_random(fetcher, large, places)
    counts = fetcher.counts()
    assert counts["ranges"] == 4  # the second lies in two, the third in the last and shorter one
    assert counts["source_bytes"] == 3 * RANGE_BYTES + SIZE % RANGE_BYTES
    assert counts["files"] == 0
    read_at_random(fetcher, large, places)
    assert fetcher.counts()["source_bytes"] == counts["source_bytes"]
    assert fetcher.finish()["files"] == 0


def test_a_second_node_takes_ranges_from_the_cache(node, large):
    places = [(50 * RANGE_BYTES, RANGE_BYTES)]
    read_at_random(node("first"), large, places)
    second = node("second")
    read_at_random(second, large, places)
    assert second.counts()["source_bytes"] == 0
    assert second.counts()["cache_chunks"] == 1


def test_a_damaged_range_in_the_cache_is_fetched_again(node, large, tmp_path):
    places = [(50 * RANGE_BYTES, RANGE_BYTES)]
    read_at_random(node("first"), large, places)
    (chunk,) = [each for each in (tmp_path / "cache/chunks").rglob("*") if each.is_file()]
    chunk.chmod(0o644)
    chunk.write_bytes(b"x" + chunk.read_bytes()[1:])
    second = node("second")
    read_at_random(second, large, places)
    assert second.counts()["source_bytes"] == RANGE_BYTES
    assert second.counts()["damaged"] == 1


def test_a_fetcher_that_was_killed_goes_on_with_what_has_come(node, large):
    first = node()
    read_at_random(first, large, [(50 * RANGE_BYTES, 10)])
    first._process.kill()
    first._process.wait()
    again = node()
    read_at_random(again, large, [(50 * RANGE_BYTES, 10)])
    assert again.counts()["source_bytes"] == 0


def test_ranges_left_behind_damaged_are_not_believed(node, large):
    first = node()
    read_at_random(first, large, [(50 * RANGE_BYTES, 10)])
    first.finish()
    (left,) = (first.state / "ranges").iterdir()
    with left.open("r+b") as file:
        file.seek(50 * RANGE_BYTES)
        file.write(b"damaged")
    again = node()
    read_at_random(again, large, [(50 * RANGE_BYTES, 10)])
    assert again.counts()["ranges"] == 1


@pytest.mark.parametrize(
    "script",
    [
        "print(hashlib.sha256(open('data/large.bin', 'rb').read()).hexdigest())",
        "print(hashlib.sha256(b''.join(iter(lambda: f.read(9999), b''))).hexdigest())",
        "print(hashlib.sha256(mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ)).hexdigest())",
        "f.seek(3); f.read(2); f.seek(0); shutil.copyfileobj(f, open('copy', 'wb')); print(hashlib.sha256(open('copy', 'rb').read()).hexdigest())",
        "f.seek(40 << 18); f.read(5); print(subprocess.run(['sha256sum'], stdin=f, capture_output=True, text=True).stdout[:64] if f.seek(0) == 0 and os.lseek(f.fileno(), 0, 0) == 0 else '')",
        "f.seek(40 << 18); f.read(5); print(hashlib.sha256(pathlib.Path('data/large.bin').read_bytes()).hexdigest())",
    ],
)
def test_who_reads_all_gets_all_in_chunks(node, large, script):
    fetcher = node()
    head = (
        "import hashlib, mmap, os, pathlib, shutil, subprocess\nf = open('data/large.bin', 'rb')\n"
    )
    assert run(fetcher, head + script).strip() == hashlib.sha256(large.read_bytes()).hexdigest()
    counts = fetcher.counts()
    assert counts["files"] == 1
    # of the beginning, or of what was read at random before
    assert counts["source_bytes"] <= SIZE + CHUNK_BYTES


def test_a_chunk_whose_ranges_have_come_does_not_come_again(node, large):
    fetcher = node()
    run(fetcher, "f = open('data/large.bin', 'rb')\nwhile f.read(9999): pass")
    assert fetcher.counts()["source_bytes"] == SIZE


def test_the_reader_is_one_like_any_other(node, large):
    script = """
import io, os
f = open("data/large.bin", "rb")
assert isinstance(f, io.BufferedReader) and f.name == "data/large.bin" and f.mode == "rb"
assert f.readable() and f.seekable() and not f.writable() and not f.isatty()
assert f.seek(0, 2) == os.path.getsize("data/large.bin") and f.read(5) == b""
assert f.seek(-7, 2) and len(f.read()) == 7
f.seek(1 << 20)
part = f.read(10); f.seek(-10, 1)
assert f.peek(4)[:4] == part[:4] and f.read(10) == part and f.tell() == (1 << 20) + 10
try: f.seek(-1)
except (OSError, ValueError) as error: print(type(error).__name__)
descriptor = f.fileno()
assert os.fstat(descriptor).st_size == f.seek(0, 2)
f.seek(1 << 20)
assert f.read(10) == part
f.close()
try: f.read(1)
except ValueError as error: print(error)
try: os.fstat(descriptor)
except OSError: print("closed")
try: open("data/no.bin", "rb")
except FileNotFoundError as error: print(error.filename)
"""
    said = run(node(), script).split("\n")
    assert said[1:4] == ["read of closed file", "closed", "data/no.bin"]


def test_open_is_the_one_that_libraries_know(node, large):
    """As an attribute of a class (`pathlib` of Python 3.10 has such a one), by pickle, and with its mistakes."""
    script = """
import io, pathlib, pickle
class Library:
    opener = open
with Library().opener("data/large.bin", "rb") as file: assert file.seek(1 << 20) and len(file.read(5)) == 5
assert pickle.loads(pickle.dumps(open)) is open is io.open and open.__name__ == "open"
with pathlib.Path("data/large.bin").open("rb") as file: assert file.seek(1 << 20) and len(file.read(5)) == 5
try: open("data/large.bin", "rb", encoding="utf-8")
except ValueError as error: print(error)
try: open("data/large.bin", "rb", sorcery=None)
except TypeError: print("no such argument")
"""
    fetcher = node()
    said = run(fetcher, script)
    assert said.split("\n")[:2] == [
        "binary mode doesn't take an encoding argument",
        "no such argument",
    ]
    assert fetcher.counts()["source_bytes"] == RANGE_BYTES


def test_a_large_part_is_asked_for_in_pieces(node, large):
    """Not in one question that asks the sharing machine for thousands of ranges at once."""
    fetcher = node()
    read_at_random(fetcher, large, [(77, 20 << 20), (9, SIZE)])
    assert fetcher.counts()["files"] == 0


def test_ranges_that_were_removed_are_no_end_of_the_file(node, large):
    script = """
import hashlib, os, pathlib
with open("data/large.bin", "rb") as file:
    file.seek(50 << 18); file.read(5)
    for each in pathlib.Path("state/ranges").iterdir(): os.truncate(each, 0)
    file.seek((50 << 18) + 20000); print(hashlib.sha256(file.read(9000)).hexdigest())
"""
    place = (50 << 18) + 20000
    wanted = hashlib.sha256(large.read_bytes()[place : place + 9000]).hexdigest()
    assert run(node(), script).strip() == wanted


def test_an_archive_is_read_by_its_members(node, tmp_path, large):
    with zipfile.ZipFile(large, "w") as archive:
        for number in range(40):
            archive.writestr(f"{number}.bin", random.Random(number).randbytes(1 << 20))
    fetcher = node()
    script = "import zipfile, hashlib; print(hashlib.sha256(zipfile.ZipFile('data/large.bin').read('17.bin')).hexdigest())"
    said = run(fetcher, script)
    assert said.strip() == hashlib.sha256(random.Random(17).randbytes(1 << 20)).hexdigest()
    assert fetcher.counts()["source_bytes"] < 4 << 20


def test_a_sharing_machine_without_ranges_sends_the_whole_file(node, large):
    fetcher = node(shared=WholeFilesOnly(share([large.parent]).manifest))
    read_at_random(fetcher, large, [(50 * RANGE_BYTES, 10), (3, 5)])
    assert fetcher.counts()["files"] == 1
    assert fetcher.counts()["source_bytes"] == SIZE


def test_a_file_that_changes_between_two_ranges_fails_by_its_name(node, large):
    fetcher = node()
    read_at_random(fetcher, large, [(50 * RANGE_BYTES, 10)])
    info = large.stat()
    with large.open("r+b") as file:
        file.seek(70 * RANGE_BYTES)
        file.write(b"other")
    os.utime(large, ns=(info.st_atime_ns, info.st_mtime_ns + 10**9))
    script = AT_RANDOM.replace(
        "found.append",
        "pass\n        try: file.read(1)\n        except OSError as error: sys.exit(str(error))\n        found.append",
    )
    told = instance_environment(fetcher, python_path=str(Path(__file__).parents[2]))
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([(70 * RANGE_BYTES, 10)])],
        cwd=fetcher.state.parent, env={**os.environ, **told}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "DataSourceChanged" in done.stderr
    with pytest.raises(SourceChanged, match=r"large\.bin"):
        fetcher.finish()


def test_eight_threads_bring_each_range_once(node, large):
    script = """
import random, sys
from concurrent.futures import ThreadPoolExecutor
def read(seed):
    with open("data/large.bin", "rb") as file:
        for part in random.Random(seed).sample(range(20, 40), 20):
            file.seek(part * 262144); file.read(100)
with ThreadPoolExecutor(8) as pool: list(pool.map(read, range(8)))
"""
    fetcher = node()
    run(fetcher, script)
    assert fetcher.counts()["source_chunks"] == 20


def test_ranges_travel_by_a_mailbox(node, large, tmp_path):
    storage = str(tmp_path / "storage")
    shared = share([large.parent])
    mailbox = start_mailbox(shared, storage)
    try:
        fetcher = node(shared=shared, source=mailbox_address(storage), cache=storage)
        read_at_random(fetcher, large, [(50 * RANGE_BYTES, 10)])
        assert mailbox.sent_bytes == RANGE_BYTES
    finally:
        mailbox.close()


def test_no_range_is_there_beyond_the_end(large):
    shared = share([large.parent])
    with pytest.raises(DataNotShared, match="no range 999"):
        shared.digests("data0", "large.bin", 999)
    store = open_store(f"memory://ranges-{uuid.uuid4().hex}")
    source = MailboxSource(shared.manifest, store, answer_seconds=30.0)
    mailbox = Mailbox(shared, store)
    root = shared.manifest.roots[0]
    threading.Timer(0.2, mailbox.poll).start()
    with pytest.raises(DataNotShared):
        source.digests(root, root.files[0], 999)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        (f"{'a' * 64}.0.json", ("a" * 64, None)),
        (f"{'a' * 64}.r17.3.json", ("a" * 64, 17)),
        (f"{'a' * 64}.r.3.json", None),
        (f"{'a' * 64}.r1.json", None),
        (f"../{'a' * 64}.0.json", None),
    ],
)
def test_a_request_says_what_it_asks_for(name, asked):
    assert asked_in(name) == asked

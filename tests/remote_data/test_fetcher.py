"""A node's files are filled with what was shared, once, whatever happens on the way."""

from __future__ import annotations

import os
import random
import threading
import uuid
from concurrent.futures import wait
from pathlib import Path

import pytest

from airflow_training.checkpoints.store import open_store
from airflow_training.errors import InputError
from airflow_training.interception.asking import is_filled
from airflow_training.remote_data.chunks import CHUNK_BYTES, ChunkCache
from airflow_training.remote_data.errors import (
    DamagedChunk,
    DataError,
    SourceAway,
    SourceGone,
    UnfetchedRead,
)
from airflow_training.remote_data.fetcher import Fetcher
from airflow_training.remote_data.guard import Guard, probe_guard
from airflow_training.remote_data.leases import FileLeases
from airflow_training.remote_data.roots import share
from airflow_training.remote_data.skeleton import Skeleton

TIMES = Guard(leases=False, modes=False, times=True)


class Source:
    """A sharing machine in this process; `spoil` may change a chunk or raise."""

    def __init__(self, shared, spoil=lambda data: data):
        self.shared, self.spoil = shared, spoil
        self.chunks: list[tuple[str, int]] = []
        self.questions = 0

    def digests(self, root, file, part=None):
        self.questions += 1
        return self.shared.digests(root.name, file.path, part)

    def only_chunk(self, root, file):
        self.questions += 1
        data = self.shared.only_chunk(root.name, file.path)
        if data:
            self.chunks.append((file.path, 0))
            data = self.spoil(data)
        return self.shared.digests(root.name, file.path), data

    def chunk(self, root, file, index, part=None):
        self.questions += 1
        self.chunks.append((file.path, index))
        return self.spoil(self.shared.chunk(root.name, file.path, index, part))


class Node:
    """A skeleton and its fetcher, in this process."""

    def __init__(self, tmp_path: Path, sizes, *, spoil=lambda data: data, patience=60.0, cache=""):
        dice = random.Random(16)
        self.laptop = tmp_path / "laptop"
        self.laptop.mkdir(exist_ok=True)
        for number, size in enumerate(sizes):
            (self.laptop / f"{number:03}").write_bytes(dice.randbytes(size))
        self.place = tmp_path / f"node-{uuid.uuid4().hex}"
        shared = share([self.laptop])
        self.source = Source(shared, spoil)
        self.skeleton = Skeleton(
            shared.manifest,
            places={"data0": str(self.place)},
            state=tmp_path / "state" / self.place.name,
            guard=TIMES,
        )
        self.skeleton.lay_out()
        self.cache = ChunkCache(open_store(cache or f"memory://fetcher-{uuid.uuid4().hex}"))
        self.failed: list[tuple[str, str]] = []
        self.outages: list[str] = []
        self.fetcher = Fetcher(
            self.skeleton,
            source=self.source,
            cache=self.cache,
            patience_seconds=patience,
            failed=lambda error, place: self.failed.append((error.reason, place)),
            away=lambda: self.outages.append(self.fetcher.waiting),
        )

    def ready(self, name: str) -> None:
        for future in self.fetcher.request(str(self.place / name) if name else str(self.place)):
            future.result(timeout=60)

    def wrong(self) -> list[str]:
        return [
            each.name
            for each in self.laptop.iterdir()
            if (self.place / each.name).read_bytes() != each.read_bytes()
        ]


@pytest.fixture
def node(tmp_path):
    nodes = []

    def make(sizes, **more):
        nodes.append(Node(tmp_path, sizes, **more))
        return nodes[-1]

    yield make
    for each in nodes:
        each.fetcher.close()


def test_a_skeleton_looks_like_the_data_and_holds_nothing(node):
    made = node([10, 0, CHUNK_BYTES + 1])
    for each in made.laptop.iterdir():
        seen, true = (made.place / each.name).stat(), each.stat()
        assert (seen.st_size, seen.st_mtime_ns) == (true.st_size, true.st_mtime_ns)
    assert sum(each.stat().st_blocks for each in made.place.iterdir()) == 0
    assert made.source.chunks == []


def test_a_file_is_filled_with_its_content_time_and_mode(node):
    made = node([10, 0, 2 * CHUNK_BYTES + 1])
    made.ready("")
    assert made.wrong() == []
    for each in made.laptop.iterdir():
        seen, true = (made.place / each.name).stat(), each.stat()
        assert (seen.st_mtime_ns, seen.st_mode) == (true.st_mtime_ns, true.st_mode)


def test_opened_means_fetched_and_nothing_else_is(node):
    made = node([10] * 5)
    made.ready("003")
    assert made.source.chunks == [("003", 0)]
    assert made.skeleton.read_before_ready() == []


def test_each_chunk_comes_once_however_many_ask(node):
    made = node([2 * CHUNK_BYTES + 1])
    threads = [threading.Thread(target=made.ready, args=("000",)) for _ in range(20)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert sorted(made.source.chunks) == [("000", 0), ("000", 1), ("000", 2)]
    assert made.wrong() == []


def test_what_a_cache_has_does_not_travel_again(node):
    cache = f"memory://shared-{uuid.uuid4().hex}"
    node([100, CHUNK_BYTES + 1], cache=cache).ready("")
    later = node([100, CHUNK_BYTES + 1], cache=cache)
    later.ready("")
    assert later.source.chunks == []
    assert later.wrong() == []


def test_the_first_run_asks_once_for_each_small_file(node, tmp_path):
    cache = str(tmp_path / "cache")
    (tmp_path / "laptop").mkdir()
    (tmp_path / "laptop/equal").write_bytes(b"1" * 10)
    (tmp_path / "laptop/equal-too").write_bytes(b"1" * 10)
    first = node([10, 20, 30], cache=cache)
    for name in ("equal", "equal-too", ""):
        first.ready(name)
    assert first.wrong() == []
    assert first.source.questions == 5
    assert first.fetcher.counts.source_chunks == 4, "what is equal comes once"
    assert first.fetcher.counts.source_bytes == 70
    later = node([10, 20, 30], cache=cache)
    later.ready("")
    assert later.wrong() == []
    assert later.source.chunks == []


def test_damage_of_what_comes_with_its_digest_is_found_too(node, tmp_path):
    bad = iter([True, True])
    made = node(
        [50], cache=str(tmp_path / "cache"), spoil=lambda data: data[: -next(bad, 0) or None]
    )
    made.ready("")
    assert made.wrong() == []
    assert made.fetcher.counts.damaged == 2


def test_neighbours_are_fetched_before_they_are_asked_for(node):
    made = node([10] * 12)
    for name in ("002", "003", "004", "005"):
        made.ready(name)
    wait(list(made.fetcher._files.values()))
    assert {name for name, _ in made.source.chunks} == {f"00{number}" for number in range(2, 10)}


def test_a_samplers_order_is_followed(node):
    made = node([10] * 12)
    made.fetcher.expect([str(made.place / name) for name in ("009", "002")])
    wait(list(made.fetcher._files.values()))
    assert sorted(name for name, _ in made.source.chunks) == ["002", "009"]


def spoil_some(make, files: int) -> None:
    dice = random.Random(16)

    def spoil(data):
        if dice.random() < 0.5:
            return data
        bad = bytearray(data)
        bad[dice.randrange(len(bad))] ^= 1 << dice.randrange(8)
        return bytes(bad)

    made = make([50] * files, spoil=spoil)
    made.ready("")
    assert made.wrong() == []
    assert made.fetcher.counts.damaged == len(made.source.chunks) - files


def test_every_bit_flipped_in_transit_is_found_and_fetched_again(node):
    spoil_some(node, 200)


@pytest.mark.soak
def test_every_bit_flipped_in_transit_of_many_is_found(node):
    spoil_some(node, 5000)


@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-1], lambda data: data + b"\0", lambda _: b""]
)
def test_bytes_that_are_never_right_are_given_to_nobody(node, spoil):
    made = node([50], spoil=spoil)
    with pytest.raises(DamagedChunk, match="000"):
        made.ready("000")
    assert made.failed == [("DataDamaged", str(made.place / "000"))]
    assert not made.skeleton.is_ready(made.skeleton.files[str(made.place / "000")])


def test_a_laptop_that_was_away_goes_on(node):
    answers = iter([SourceAway("asleep"), SourceAway("asleep"), None, SourceAway("asleep")])

    def spoil(data):
        error = next(answers, None)
        if error:
            raise error
        return data

    made = node([50, 50], spoil=spoil)
    made.ready("000")
    assert len(made.outages) == 1, "told as it begins"
    made.ready("001")
    assert len(made.outages) == 2
    assert made.wrong() == []
    assert made.fetcher.counts.waited_seconds > 0
    assert made.fetcher.waiting == ""


def test_a_laptop_that_is_gone_for_long_is_a_reason(node):
    def spoil(data):
        raise SourceAway("asleep")

    made = node([50], spoil=spoil, patience=0.0)
    with pytest.raises(SourceGone, match="asleep"):
        made.ready("000")
    assert made.failed == [("DataSourceGone", str(made.place / "000"))]


def test_a_source_that_changed_fails_by_its_name(node):
    made = node([50])
    os.utime(made.laptop / "000", ns=(1, 1))
    with pytest.raises(DataError, match="000"):
        made.ready("000")
    assert made.failed == [("DataSourceChanged", str(made.place / "000"))]


def test_a_file_that_was_read_before_its_content_was_there_is_named(node):
    made = node([50, 50, 50])
    made.ready("000")
    (made.place / "000").read_bytes()
    (made.place / "001").read_bytes()
    (made.place / "002").stat()
    assert made.skeleton.read_before_ready() == [str(made.place / "001")]


def test_a_file_that_was_read_before_or_while_it_was_filled_is_named(node):
    made = node([50])
    (made.place / "000").read_bytes()
    with pytest.raises(UnfetchedRead, match="000"):
        made.ready("000")
    assert made.failed == [("UnfetchedDataRead", str(made.place / "000"))]


def test_nobody_is_accused_at_the_moment_when_a_file_gets_its_time(node, monkeypatch):
    made = node([50])
    set_time, accused = os.utime, []

    def look_at_once(*args, **more):
        set_time(*args, **more)
        accused.extend(made.skeleton.read_before_ready())

    monkeypatch.setattr(os, "utime", look_at_once)
    made.ready("000")
    assert accused == []


def test_what_goes_wrong_in_any_way_is_told_to_who_waits(node):
    def spoil(data):
        raise ValueError("unforeseen")

    made = node([50], spoil=spoil)
    with pytest.raises(DataError, match=r"000.*unforeseen"):
        made.ready("000")
    assert made.failed == [("DataError", str(made.place / "000"))]


def test_chunks_that_are_late_are_never_written_to_another_file(node, tmp_path):
    """The first chunk fails for good while the second is on its way."""
    second, failed = threading.Event(), threading.Event()

    def spoil(data):
        if len(data) == CHUNK_BYTES:
            second.wait(60)
            raise ValueError("unforeseen")
        second.set()
        failed.wait(0.05)
        return data

    made = node([CHUNK_BYTES + 1], spoil=spoil)
    future = made.fetcher.request(str(made.place / "000"))[0]
    with pytest.raises(DataError):
        future.result(timeout=60)
    with (tmp_path / "other").open("w+b") as other:  # it gets the number that has become free
        failed.set()
        made.fetcher.close()
        assert other.read() == b""


@pytest.mark.e2e  # takes leases of the file system, and blocks their signals in this process
def test_content_that_comes_after_a_reader_was_let_through_is_written_nowhere(node, tmp_path):
    if not probe_guard(tmp_path, files=1).leases:
        pytest.skip("no leases on this file system")
    asked, comes = threading.Event(), threading.Event()

    def spoil(data):
        asked.set()
        comes.wait(60)
        return data

    made = node([50], spoil=spoil)
    place = str(made.place / "000")
    made.fetcher._leases = leases = FileLeases(opened=lambda path: None, too_late=lambda path: None)
    assert leases.take([place]) == []
    future = made.fetcher.request(place)[0]
    asked.wait(60)
    assert leases.cut(place)
    with (tmp_path / "other").open("w+b") as other:  # it gets the number that has become free
        comes.set()
        with pytest.raises(UnfetchedRead, match="000"):
            future.result(timeout=60)
        assert other.read() == b""
    assert Path(place).read_bytes() == b""
    assert not leases.cut(place)
    leases.close()


def again_of(made):
    skeleton = Skeleton(
        made.source.shared.manifest,
        places={"data0": str(made.place)},
        state=made.skeleton._journal.parent,
        guard=TIMES,
    )
    skeleton.lay_out()
    return skeleton


def test_a_file_that_was_cut_has_its_size_again_at_the_next_start(node):
    made = node([50])
    os.truncate(made.place / "000", 0)
    again_of(made)
    assert (made.place / "000").stat().st_size == 50


def test_a_file_whose_filling_was_killed_at_its_last_step_is_ready_at_the_next_start(
    node, monkeypatch
):
    made = node([50])
    with monkeypatch.context() as patch:

        def killed(*args, **more):
            raise OSError("killed")

        patch.setattr(os, "utime", killed)
        with pytest.raises(DataError):
            made.ready("000")
    again = again_of(made)
    assert again.read_before_ready() == []
    assert is_filled(str(made.place / "000"))
    assert made.wrong() == []


def test_names_as_long_as_names_can_be(node):
    made = node([])
    (made.laptop / ("x" * 255)).write_bytes(b"x")
    (made.laptop / "x").write_bytes(b"y")
    later = node([])
    later.ready("")
    assert later.wrong() == []


def test_a_second_start_goes_on_with_what_there_is(node):
    made = node([50, 50])
    made.ready("000")
    again = Skeleton(
        made.source.shared.manifest,
        places={"data0": str(made.place)},
        state=made.skeleton._journal.parent,
        guard=TIMES,
    )
    again.lay_out()
    assert [each.file.path for each in again.unfetched()] == ["001"]
    assert (made.place / "000").read_bytes() == (made.laptop / "000").read_bytes()


def test_nothing_that_lies_there_is_overwritten(node, tmp_path):
    made = node([50])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "000").write_text("mine")
    skeleton = Skeleton(
        made.source.shared.manifest,
        places={"data0": str(tmp_path / "other")},
        state=tmp_path / "other-state",
        guard=TIMES,
    )
    with pytest.raises(InputError, match="000"):
        skeleton.lay_out()
    assert (tmp_path / "other" / "000").read_text() == "mine"

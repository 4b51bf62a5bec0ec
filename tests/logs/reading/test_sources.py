"""Every kind of log reads the same, at any offset."""

from __future__ import annotations

import gzip
import random
import sys

import pytest
import zstandard

from airflow_training.logs.reading.follow import follow
from airflow_training.logs.reading.opening import open_log
from airflow_training.logs.reading.source import (
    BLOCK_BYTES,
    LONGEST_LINE,
    LogUnreadable,
    lines,
)
from airflow_training.logs.reading.tables import read_table
from tests.logs.reading.counted import CountedFile


def a_text(size: int) -> bytes:
    dice = random.Random(7)
    found = []
    while size > 0:
        found.append(b"%d step loss %.6f\n" % (size, dice.random()))
        size -= len(found[-1])
    return b"".join(found)


LONG = a_text(12_000_000)


def test_bytes_at_any_offset(make):
    source = make(LONG)
    dice = random.Random(1)
    offsets = [0, len(LONG) - 10, len(LONG), *(dice.randrange(len(LONG)) for _ in range(12))]
    for offset in offsets:
        found = b""
        part = source.read(offset, 1000)
        while part.data and len(found) < 1000:
            assert part.next_offset - len(part.data) == offset + len(found)
            found += part.data
            part = source.read(offset + len(found), 1000 - len(found))
        assert found == LONG[offset : offset + 1000]
    source.close()
    source.close()


def test_reading_on_reaches_the_end(make):
    source = make(LONG[:700_000])
    part = source.read(0, 64_000)
    found = part.data
    for _ in range(100):
        if part.end:
            break
        part = source.read(part.next_offset, 64_000)
        found += part.data
    assert found == LONG[:700_000]
    assert part.end


def test_an_empty_log_is_at_its_end(make):
    part = make(b"").read(0, 100)
    assert part == (b"", 0, True)


def test_lines_have_their_offsets(make):
    text = b"one\n\ntwo \r 50%|\r100%|\nlast without end"
    found = list(lines(make(text)))
    assert [line.data for line in found] == [
        b"one\n",
        b"\n",
        b"two \r 50%|\r100%|\n",
        b"last without end",
    ]
    assert all(text[line.offset :].startswith(line.data) for line in found)


def test_a_line_without_end_is_cut_and_not_held(tmp_path):
    path = tmp_path / "one-line.log"
    with path.open("wb") as file:
        for _ in range(60):
            file.write(b"x" * 1_000_000)
    log = CountedFile(path)
    given = 0
    for line in lines(log):
        assert log.read_bytes - given <= LONGEST_LINE + BLOCK_BYTES
        given += len(line.data)
    assert given == 60_000_000


def test_going_back_in_gzip_starts_in_the_middle(makers):
    source = makers["gzip"](LONG)
    source.read(11_900_000, 10)
    reads = []
    plain = source._raw.read

    def counted(offset, limit):
        reads.append(limit)
        return plain(offset, limit)

    source._raw.read = counted
    assert source.read(9_000_000, 20).data == LONG[9_000_000:9_000_020]
    assert sum(reads) < source._raw.size() / 2


def test_memory_of_restart_points_is_bounded(makers, monkeypatch):
    from airflow_training.logs.reading import compressed

    monkeypatch.setattr(compressed, "_SPACING", 100_000)
    monkeypatch.setattr(compressed, "_POINTS", 8)
    source = makers["gzip"](LONG)
    source.read(11_000_000, 10)
    assert len(source._points) <= 8
    assert source.read(5_000_001, 30).data == LONG[5_000_001:5_000_031]


def test_a_damaged_archive_says_where(tmp_path):
    packed = bytearray(gzip.compress(LONG[:1_000_000]))
    packed[5000:5100] = b"\0" * 100
    path = tmp_path / "bad.log.gz"
    path.write_bytes(packed)
    with pytest.raises(LogUnreadable, match=r"bad\.log\.gz: damaged after \d+ compressed bytes"):
        list(lines(open_log(str(path))))


def test_a_cut_archive_gives_what_there_is(tmp_path):
    path = tmp_path / "cut.log.gz"
    path.write_bytes(gzip.compress(LONG[:1_000_000])[:-1000])
    found = b"".join(line.data for line in lines(open_log(str(path))))
    assert LONG.startswith(found)
    assert len(found) > 900_000


@pytest.mark.parametrize(
    "name", ["nothing.log", "memory://bucket/nothing.log", "nosuchscheme://a/b.log"]
)
def test_what_is_not_there_is_named(name, tmp_path):
    where = name if "://" in name else str(tmp_path / name)
    with pytest.raises(LogUnreadable, match=name.split("://")[-1].split("/")[-1]):
        open_log(where)


def test_what_an_extra_would_read_names_it(tmp_path, monkeypatch):
    (tmp_path / "a.log.zst").write_bytes(zstandard.compress(b"text"))
    (tmp_path / "a.csv").write_bytes(b"x\n1\n")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(LogUnreadable, match=r"airflow-training\[logs\]"):
        open_log(str(tmp_path / "a.log.zst"))
    with pytest.raises(LogUnreadable, match=r"airflow-training\[logs\]"):
        read_table(str(tmp_path / "a.csv"))


def test_following_a_file_across_a_rotation_and_a_truncation(tmp_path):
    path = tmp_path / "worker-0.log"
    path.write_bytes(b"first\n")
    late = tmp_path / "worker-0.log.1"

    def append(text: bytes) -> None:
        with path.open("ab") as file:
            file.write(text)

    def rotate():
        append(b"before the rotation\n")
        path.rename(late)
        path.write_bytes(b"after it\n")

    writes = iter(
        [
            lambda: append(b"second\n"),
            rotate,
            lambda: path.write_bytes(b"short\n"),
        ]
    )

    def wait() -> bool:
        write = next(writes, None)
        if write is not None:
            write()
        return write is not None

    parts = list(follow(open_log(str(path)), wait=wait))
    assert b"".join(part.data for part in parts) == (
        b"first\nsecond\nbefore the rotation\nafter it\nshort\n"
    )
    starts = [part.next_offset - len(part.data) for part in parts]
    assert starts == [0, 6, 13, 0, 0]


def test_an_archive_that_kept_only_the_end_says_where_it_begins():
    from airflow_training.logs.reading.instance import FetchResult, InstanceLog

    kept = LONG[1_000_000:1_000_500]

    def fetch(offset: int, token: str, limit: int) -> FetchResult:
        start = max(offset, 1_000_000)
        data = kept[start - 1_000_000 :][:limit]
        return FetchResult(data, start + len(data), "", not data)

    source = InstanceLog("worker-0", fetch)
    assert source.read(0, 100) == (kept[:100], 1_000_100, False)
    assert next(lines(source)).offset == 1_000_000
    assert source.read(1_000_400, 1000).data == kept[400:]

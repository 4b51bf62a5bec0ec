"""What a scan of files gives does not depend on processes, on what is remembered, or on how the file is packed."""

from __future__ import annotations

import gzip
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_training.logs.engine import index, scan, scan_files, stretches, work
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import FileScan, Origin
from tests.logs.engine.test_agreement import assert_same
from tests.logs.engine.text import SIGNATURES

ORIGIN = Origin(file="x", rank=1)
FORMATS = formats()


def log(lines: int, *, seed: int = 0) -> bytes:
    written = []
    for number in range(seed, seed + lines):
        written.append(
            b" iteration %8d/ 90000 | consumed samples: %d | elapsed time per iteration (ms): %d.5 |"
            b" lm loss: %d.25 |\n" % (number, number * 8, 100 + number % 7, number % 11)
        )
        written.append(
            b"{'loss': %d.5, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\r\n"
            % (number % 5)
        )
        written.append(b"[rank%d]: worker reads shard %d\n" % (number % 3, number))
        if number % 97 == 5:
            written.append(
                b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
            )
    return b"".join(written)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let files of some hundred kilobytes be worth processes and an index."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(stretches, "SHARED_BYTES", 10_000)
    monkeypatch.setattr("airflow_training.logs.engine.SHARED_BYTES", 10_000)
    monkeypatch.setattr("airflow_training.logs.engine.WORTH_BYTES", 10_000)


def scanned(path: Path, *, processes: int | None = 1, **options: Any) -> FileScan:
    """Scan a file, in this process unless another number is asked for."""
    return scan(
        ORIGIN, path, signatures=SIGNATURES, formats=FORMATS, processes=processes, **options
    )


def assert_all_same(found: FileScan, expected: FileScan) -> None:
    assert_same(found, expected)
    for name in ("first_time", "last_time", "tail", "tail_line", "tail_offsets"):
        assert getattr(found, name) == getattr(expected, name), name


@pytest.mark.e2e
@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_find_what_one_finds(tmp_path: Path, processes: int):
    path = tmp_path / "a.log"
    path.write_bytes(log(3000) + b"unended")
    found = scanned(path, processes=processes)
    assert found.counts[("oom/torch", 2)] == 31
    assert_all_same(found, scanned(path, processes=1))


@pytest.mark.e2e
def test_several_files_keep_their_order(tmp_path: Path):
    files = []
    for number in range(5):
        path = tmp_path / f"rank{number}.log"
        path.write_bytes(log(300, seed=number))
        files.append((Origin(file=path.name, rank=number), path))
    found = scan_files(files, signatures=SIGNATURES, formats=FORMATS, processes=2)
    assert [each.origin.rank for each in found] == [0, 1, 2, 3, 4]
    for one, (origin, path) in zip(found, files, strict=True):
        assert_all_same(one, scan(origin, path, signatures=SIGNATURES, formats=FORMATS))


@pytest.mark.e2e
def test_a_process_that_dies_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    path = tmp_path / "a.log"
    path.write_bytes(log(3000))
    expected = scanned(path, processes=1)
    parent = os.getpid()
    real = stretches.scan_stretch

    def dies(*arguments: Any, **options: Any) -> Any:
        if os.getpid() != parent:
            os.kill(os.getpid(), 9)
        return real(*arguments, **options)

    monkeypatch.setattr("airflow_training.logs.engine.scan_stretch", dies)
    assert_all_same(scanned(path, processes=2), expected)


def test_scans_in_threads_do_not_meet(tmp_path: Path):
    paths = [tmp_path / f"{number}.log" for number in range(4)]
    for number, path in enumerate(paths):
        path.write_bytes(log(1500, seed=number))
    expected = [scanned(path) for path in paths]
    with ThreadPoolExecutor(len(paths)) as pool:
        found = list(pool.map(scanned, paths * 3))
    for one, other in zip(found, expected * 3, strict=True):
        assert_all_same(one, other)


@pytest.mark.e2e
def test_an_error_in_a_process_is_told(tmp_path: Path):
    def fails(item: int) -> int:
        raise ValueError(f"item {item}")

    with pytest.raises(ValueError, match="item"):
        list(work.share_out([1, 2, 3], fails, processes=2))


def test_a_compressed_log_is_read_as_the_plain_one(tmp_path: Path):
    data = log(2000) + b"loss is nan"
    plain, packed = tmp_path / "a.log", tmp_path / "a.log.gz"
    plain.write_bytes(data)
    packed.write_bytes(gzip.compress(data))
    assert_all_same(scanned(packed), scanned(plain, processes=1))


@pytest.mark.parametrize("cut", [-1, -7, -300])
def test_looking_again_reads_only_what_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cut: int
):
    path = tmp_path / "a.log"
    data = log(2000)
    path.write_bytes(data[:cut])
    scanned(path, remember=True)
    assert_all_same(scanned(path, remember=True), scanned(path))
    path.write_bytes(data + log(50, seed=2000))
    starts = []
    real = stretches.scan_stretch

    def watched(machine, origin, source, start, end, **options):
        starts.append(start)
        return real(machine, origin, source, start, end, **options)

    monkeypatch.setattr("airflow_training.logs.engine.scan_stretch", watched)
    found = scanned(path, remember=True, processes=1)
    assert min(starts) > len(data) - 400
    assert_all_same(found, scanned(path, processes=1))


@pytest.mark.parametrize("now", [log(2000, seed=7), log(900)], ids=["another", "shorter"])
def test_another_log_of_the_same_name_is_read_whole(tmp_path: Path, now: bytes):
    path = tmp_path / "a.log"
    path.write_bytes(log(1000))
    scanned(path, remember=True)
    path.write_bytes(now)
    assert_all_same(scanned(path, remember=True), scanned(path))


def test_a_damaged_index_is_as_none(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(log(1000))
    expected = scanned(path, remember=True)
    for kept in (tmp_path / "cache").glob("*/log-*"):
        kept.write_bytes(b"\x80damaged")
    assert_all_same(scanned(path, remember=True), expected)


def test_a_cache_folder_that_cannot_be_written_is_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    path = tmp_path / "a.log"
    path.write_bytes(log(1000))
    assert scanned(path, remember=True).lines == scanned(path).lines


def test_one_line_without_end_needs_no_memory_of_its_size(tmp_path: Path):
    path = tmp_path / "a.log"
    with path.open("wb") as file:
        file.write(
            b"first\n"
            + b"x" * (30 << 20)
            + b"CUDA out of memory. Tried to allocate 1 GiB"
            + b"y" * (1 << 20)
        )
    found = scanned(path)
    assert found.lines == 2
    assert [(hit.signature, hit.line) for hit in found.hits if hit.signature == "oom/torch"] == [
        ("oom/torch", 2)
    ]
    assert len(found.hits[0].text) <= 2000


def test_more_parts_in_a_block_than_are_taken_at_once_are_all_read(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(b"a\r\n" * 1_600_000 + b"loss is nan\n")
    found = scanned(path, processes=1)
    assert found.lines == 1_600_001
    assert [(hit.signature, hit.line) for hit in found.hits] == [("nan/loss", 1_600_001)]


def test_an_empty_log_is_no_error(tmp_path: Path):
    (tmp_path / "a.log").touch()
    found = scanned(tmp_path / "a.log")
    assert replace(found, origin=ORIGIN) == FileScan(origin=ORIGIN)


def test_the_index_knows_for_what_a_log_was_scanned(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(log(1000) + b"Broken pipe\n")
    scan(ORIGIN, path, signatures=SIGNATURES[:2], formats=None, remember=True, processes=1)
    assert ("two/branches", 1) in scanned(path, remember=True).counts
    assert index.WORTH_BYTES > 1 << 20

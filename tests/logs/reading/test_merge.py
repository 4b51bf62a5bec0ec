"""Ranks as one log: by time, in bounded memory, whatever their clocks say."""

from __future__ import annotations

import gc
from datetime import datetime, timezone

import pytest

from airflow_training.logs.reading import source
from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.merge import clock_skews, merge
from airflow_training.logs.reading.times import TimedLine, timed
from tests.logs.reading.counted import CountedFile

START = 1_700_000_000.0


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="milliseconds")


def rank_log(path, rank: int, *, steps: int = 50, ahead: float = 0.0, jitter: float = 0.0):
    lines = []
    for step in range(steps):
        at = START + 2 * step + ahead + jitter * ((step * 7 + rank * 3) % 5)
        lines.append(f"{stamp(at)} step: {step} loss: {2 / (step + 1):.4f} rank {rank}\n")
        lines.append(f"  detail of rank {rank}\n")
    path.write_text("".join(lines))
    return LocalFile(path)


def test_lines_come_by_time_and_details_stay_with_theirs(tmp_path):
    logs = [rank_log(tmp_path / f"{rank}.log", rank, ahead=0.1 * rank) for rank in range(3)]
    merged = list(merge([timed(log) for log in logs]))
    assert [each.source for each in merged] == [0, 0, 1, 1, 2, 2] * 50
    times = [each.time or 0 for each in merged]
    assert times == sorted(times)


def test_clocks_that_differ_are_set_right(tmp_path):
    logs = [
        rank_log(tmp_path / "0.log", 0, jitter=0.02),
        rank_log(tmp_path / "1.log", 1, ahead=137.0, jitter=0.02),
        rank_log(tmp_path / "2.log", 2, ahead=-61.5, jitter=0.02),
    ]
    skews = clock_skews(logs)
    assert skews == pytest.approx([0, 137, -61.5], abs=0.1)
    merged = list(merge([timed(log) for log in logs], skews=skews))
    steps = [
        int(each.line.line.data.split(b"step: ")[1].split()[0])
        for each in merged
        if b"step" in each.line.line.data
    ]
    assert steps == sorted(steps)


def test_a_rank_that_falls_behind_is_no_wrong_clock(tmp_path):
    """Each step is later than the one before: the lag is real and must stay visible."""
    first = rank_log(tmp_path / "0.log", 0)
    slow = tmp_path / "1.log"
    slow.write_text(
        "".join(f"{stamp(START + 3 * step)} step: {step} loss: 0.1\n" for step in range(50))
    )
    assert clock_skews([first, LocalFile(slow)]) == [0, 0]


def test_few_common_lines_tell_nothing(tmp_path):
    logs = [
        rank_log(tmp_path / "0.log", 0, steps=3),
        rank_log(tmp_path / "1.log", 1, steps=3, ahead=50),
    ]
    assert clock_skews(logs) == [0, 0]
    assert clock_skews([]) == []


def test_a_line_out_of_order_stays_behind_the_one_before_it(tmp_path):
    odd = tmp_path / "0.log"
    odd.write_text(f"{stamp(START + 5)} a\n{stamp(START + 1)} b\n{stamp(START + 9)} c\n")
    other = tmp_path / "1.log"
    other.write_text(f"{stamp(START + 6)} d\n")
    merged = merge([timed(LocalFile(odd)), timed(LocalFile(other))])
    assert [each.line.line.data.split()[1] for each in merged] == [b"a", b"b", b"d", b"c"]


def test_what_is_held_does_not_grow_with_the_logs(tmp_path, monkeypatch):
    """A block and a line of each log."""
    monkeypatch.setattr(source, "BLOCK_BYTES", 4096)
    paths = [tmp_path / f"{rank}.log" for rank in range(4)]
    for rank, path in enumerate(paths):
        rank_log(path, rank, steps=1000)
    logs = [CountedFile(path) for path in paths]
    before = held_lines()
    given = 0
    for number, each in enumerate(merge([timed(log) for log in logs])):
        given += len(each.line.line.data)
        assert sum(log.read_bytes for log in logs) - given <= 4 * 2 * 4096
        if number % 2000 == 1999:
            assert held_lines() - before <= 2 * len(logs)
    assert given == sum(log.size() for log in logs)


def held_lines() -> int:
    return sum(type(each) is TimedLine for each in gc.get_objects())

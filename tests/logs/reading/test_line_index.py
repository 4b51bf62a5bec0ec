"""Line number n of a log, counted bit by bit and remembered."""

from __future__ import annotations

import random

import pytest

from airflow_training.logs.reading import line_index
from airflow_training.logs.reading.line_index import LineIndex, LineIndexes
from airflow_training.logs.reading.memory import BytesLog
from airflow_training.logs.reading.source import LogSlice


@pytest.mark.parametrize("marks", [4, 65_536])
def test_every_line_is_found_where_it_begins(monkeypatch: pytest.MonkeyPatch, marks: int):
    monkeypatch.setattr(line_index, "_SPACING", 8)
    monkeypatch.setattr(line_index, "_MOST_MARKS", marks)
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 100)
    dice = random.Random(5)
    texts = [b"x" * dice.randrange(40) + b"\n" for _ in range(500)]
    log, index = BytesLog("log", b"".join(texts)), LineIndex()
    while index.count(log, len(texts) + 1, budget=1000):
        pass
    assert index.lines == len(texts)
    for line in (*range(20), 250, 499):
        assert index.offset(log, line) == sum(len(each) for each in texts[:line])
    assert index.offset(log, 501) is None


def test_what_lies_behind_a_very_long_line_is_found_without_reading_that_line_again(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(line_index, "_APART", 1000)
    monkeypatch.setattr(line_index, "BLOCK_BYTES", 100)
    short, long = b"step\n" * 10, b"x" * 50_000 + b"\n"
    log, index = BytesLog("log", (short + long) * 3 + short), LineIndex()
    index.count(log, 100, budget=1 << 20)
    asked: list[int] = []
    read = log.read

    def note(offset: int, size: int) -> LogSlice:
        asked.append(size)
        return read(offset, size)

    monkeypatch.setattr(log, "read", note)
    for line in (0, 9, 10, 11, 21, 25, 32, 33, 42):
        asked.clear()
        assert index.offset(log, line) == 5 * (line - line // 11) + 50_001 * (line // 11)
        assert sum(asked) <= 1100, line


def test_a_line_that_was_not_counted_yet_is_counted_on_from_there():
    log, index = BytesLog("log", b"line\n" * 1_000_000), LineIndex()
    assert index.count(log, 900_000, budget=1 << 20)
    assert index.offset(log, 900_000) is None
    asked = 0
    while index.offset(log, 900_000) is None:
        assert index.count(log, 900_000, budget=1 << 20)
        asked += 1
    assert asked == 4
    assert index.offset(log, 900_000) == 4_500_000


def test_another_generation_is_counted_anew():
    known = LineIndexes()
    assert known.of("run", "worker", "0", "1") is known.of("run", "worker", "0", "1")
    assert known.of("run", "worker", "0", "1") is not known.of("run", "worker", "0", "2")

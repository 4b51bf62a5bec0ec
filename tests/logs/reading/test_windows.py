"""Pages of several logs by time: forward and backward they hold every line once, in one order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_training.logs.reading.memory import BytesLog
from airflow_training.logs.reading.windows import (
    page_after,
    page_before,
    window_after,
    window_before,
)

BEGUN = (100.0, 101.0, 102.0)


def stamped(seconds: int, text: str) -> str:
    return f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02} {text}"


def log_of(lines: list[tuple[int, str]]) -> bytes:
    """One log in the order of its times; a text that begins with a dot has none."""
    ordered = sorted(lines, key=lambda each: each[0])
    return "".join(
        (text if text.startswith(".") else stamped(at, text)) + "\n" for at, text in ordered
    ).encode()


def forward(logs: list[bytes], *, size: int, page: int) -> list[tuple[int, int]]:
    sources = [BytesLog("log", each) for each in logs]
    offsets, times = [0] * len(logs), [*BEGUN[: len(logs)]]
    found: list[tuple[int, int]] = []
    while True:
        windows = [
            window_after(source, offset, size=size, time=time, over=True)
            for source, offset, time in zip(sources, offsets, times, strict=True)
        ]
        merged, offsets = page_after(windows, size=page)
        if not merged:
            return found
        for each in merged:
            times[each.source] = each.time or 0.0
        found += [(each.source, each.line.line.offset) for each in merged]


def backward(logs: list[bytes], *, size: int, page: int) -> list[tuple[int, int]]:
    sources = [BytesLog("log", each) for each in logs]
    offsets = [len(each) for each in logs]
    found: list[tuple[int, int]] = []
    while any(offsets):
        windows = [
            window_before(source, offset, size=size, time=BEGUN[number])
            for number, (source, offset) in enumerate(zip(sources, offsets, strict=True))
        ]
        merged, offsets = page_before(windows, size=page)
        assert merged
        found = [(each.source, each.line.line.offset) for each in merged] + found
    return found


LINES = st.lists(
    st.tuples(st.integers(0, 600), st.sampled_from(["a", "longer text", ".  no time", "."])),
    max_size=40,
)


@given(logs=st.lists(LINES.map(log_of), min_size=1, max_size=3), page=st.integers(1, 400))
def test_all_lines_are_there_once_whatever_the_pages(logs: list[bytes], page: int):
    lines = {
        (number, offset)
        for number, text in enumerate(logs)
        for offset in [0, *(place + 1 for place, each in enumerate(text) if each == 10)]
        if offset < len(text)
    }
    whole = forward(logs, size=1 << 16, page=1 << 16)
    for size in (60, 1 << 16):
        there = forward(logs, size=size, page=page)
        back = backward(logs, size=size, page=page)
        for found in (there, back):
            assert len(found) == len(lines)
            assert {*found} == lines
        assert there == whole
    assert backward(logs, size=1 << 16, page=1 << 16) == whole


def test_lines_of_two_logs_stand_by_time_and_a_traceback_with_its_line():
    first = log_of([(10, "a"), (10, ". of a"), (30, "c")])
    second = log_of([(20, "b"), (40, "d")])
    assert forward([first, second], size=1 << 16, page=1 << 16) == [
        (0, 0),
        (0, first.index(b". of a")),
        (1, 0),
        (0, first.index(b"2026-01-01T00:00:30")),
        (1, second.index(b"2026-01-01T00:00:40")),
    ]


def test_half_a_line_waits_until_it_is_whole():
    growing = BytesLog("log", b"one\ntw")
    window = window_before(growing, 6, size=100, time=1.0, growing=True)
    assert (window.end, [each.line.data for each in window.lines]) == (4, [b"one\n"])

"""The end of a log, lines by pattern, lines by time."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.reading import search, source
from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.search import BadPattern, Searcher
from airflow_training.logs.reading.source import Line
from airflow_training.logs.reading.tail import tail
from airflow_training.logs.reading.times import between, offset_at, time_of
from tests.examples import examples
from tests.logs.reading.conftest import served

START = 1_700_000_000.0


def stamp(at: float) -> str:
    moment = datetime.fromtimestamp(at, tz=timezone.utc)
    return moment.strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]


def stamped(count: int, *, seconds: float = 1.0, filler: int = 40) -> bytes:
    """Return a log in which every line but each third has a time."""
    return b"".join(
        (f"{stamp(START + number * seconds)} " if number % 3 else "  ").encode()
        + b"line %d %s\n" % (number, b"." * filler)
        for number in range(count)
    )


# the end ---------------------------------------------------------------------------------------
@pytest.mark.parametrize("text", [b"", b"one", b"one\n", b"one\ntwo\nthree", b"one\ntwo\nthree\n"])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 9])
def test_the_last_lines(make, text, count):
    expected = b"".join(text.splitlines(keepends=True)[-count:]) if count else b""
    assert tail(make(text), count).data == expected


def test_the_last_lines_of_a_long_log(make):
    text = stamped(30_000)
    part = tail(make(text), 2_000)
    assert part.data == b"".join(text.splitlines(keepends=True)[-2_000:])
    assert part.next_offset == len(text)


def test_the_end_of_one_endless_line_is_bounded(make):
    bar = b"50%\r" * 500_000
    part = tail(make(bar), 5)
    assert part.cut
    assert len(part.data) <= 100_000
    assert bar.endswith(part.data)
    assert part.next_offset == len(bar)


def test_lines_that_are_long_but_few_are_shown_whole(make):
    text = b"".join(b"%d" % each * 60_000 + b"\n" for each in range(3))
    part = tail(make(text), 1)
    assert (part.data, part.cut) == (text[-60_001:], False)


def test_the_end_of_a_long_line_begins_with_a_whole_character(make):
    for shift in range(4):
        part = tail(make(b"x" * shift + "\u7ec3".encode() * 100_000), 1)
        assert part.cut
        assert set(part.data.decode()) == {"\u7ec3"}


def test_as_many_lines_as_were_asked_for_are_shown_however_many_there_are(make):
    text = b"step\n" * 400_000
    part = tail(make(text), 300_000)
    assert (len(part.data), part.cut) == (5 * 300_000, False)


# by pattern --------------------------------------------------------------------------------------
def reference(text: bytes, pattern: str, context: int) -> list[tuple[int, bytes, bytes, bytes]]:
    """Return what a person with `grep -n -C` sees."""
    each = text.splitlines(keepends=True) if text else []
    return [
        (
            number + 1,
            line,
            b"".join(each[max(0, number - context) : number]),
            b"".join(each[number + 1 : number + 1 + context]),
        )
        for number, line in enumerate(each)
        if re.search(pattern.encode(), line.rstrip(b"\n"))
    ]


def found_in(
    log: source.Source, pattern: str, context: int
) -> list[tuple[int, bytes, bytes, bytes]]:
    def joined(lines: tuple[Line, ...]) -> bytes:
        return b"".join(line.data for line in lines)

    return [
        (each.number, each.line.data, joined(each.before), joined(each.after))
        for each in Searcher(pattern).search(log, context=context)
    ]


LINES = st.lists(
    st.sampled_from([b"", b"error", b"an error here", b"ok", b"\xff\x00\r50%\r", b"e"])
)


@settings(max_examples=examples(300), deadline=None)
@given(
    LINES,
    st.booleans(),
    st.sampled_from(["error", "^ok$", "e.*e", "error|ok", "^$", r"\s"]),
    st.integers(0, 3),
    st.integers(1, 40),
)
def test_search_is_grep_whatever_the_blocks(lines, ended, pattern, context, block):
    text = b"\n".join(lines) + b"\n" * (ended and bool(lines))
    text = text.replace(b"\r", b"-")  # `splitlines` would split there

    assert found_in(served(text, piece=block), pattern, context) == reference(
        text, pattern, context
    )


def test_search_in_every_kind_of_log(make):
    text = stamped(40_000)
    found = list(Searcher(r"line 3999\d ").search(make(text), context=1))
    assert [each.number for each in found] == list(range(39_991, 40_001))
    assert [len(each.before) for each in found] == [1] * 10
    assert [len(each.after) for each in found] == [1] * 9 + [0]
    assert all(text[each.line.offset :].startswith(each.line.data) for each in found)


def test_search_in_a_line_longer_than_memory_should_hold(tmp_path, monkeypatch):
    monkeypatch.setattr(search, "LONGEST_LINE", 3_000_000)
    path = tmp_path / "bar.log"
    path.write_bytes(b"50%|\r" * 2_000_000 + b"error at last\n" + b"next\n")
    found = list(Searcher("error").search(LocalFile(path), context=1))
    assert [each.number for each in found] == [1]
    assert len(found[0].line.data) <= 4_100_000
    assert [line.data for line in found[0].after] == [b"next\n"]


def test_case_and_plain_text():
    log = served(b"CUDA error (2)\ncuda ERROR [2]\n")
    assert [f.number for f in Searcher("cuda error", ignore_case=True).search(log)] == [1, 2]
    assert [f.number for f in Searcher("error (2)", literal=True).search(log)] == [1]


def test_a_pattern_that_is_none_says_why():
    with pytest.raises(BadPattern, match="missing"):
        Searcher("(loss")


# by time -----------------------------------------------------------------------------------------
def test_a_stretch_of_time_of_every_kind_of_log(make):
    text = stamped(20_000)
    found = list(between(make(text), since=START + 7_000, until=START + 7_010))
    # lines 6999 and 7011 have no time of their own and go with those before them
    assert [int(each.line.data.split(b"line ")[1].split()[0]) for each in found] == list(
        range(7_000, 7_012)
    )
    assert all(text[each.line.offset :].startswith(each.line.data) for each in found)


def test_an_open_stretch(tmp_path):
    path = tmp_path / "a.log"
    path.write_bytes(b"no time yet\n" + stamped(100)[:-1])
    log = LocalFile(path)
    assert len(list(between(log))) == 101
    assert len(list(between(log, until=START + 8))) == 11
    assert len(list(between(log, since=START + 91))) == 9
    assert list(between(log, since=START + 1_000)) == []


def test_bisection_reads_little(tmp_path):
    path = tmp_path / "large.log"
    path.write_bytes(stamped(200_000, filler=100))
    asked = []

    class Counted(LocalFile):
        def read(self, offset: int, limit: int) -> source.LogSlice:
            asked.append(limit)
            return super().read(offset, limit)

    offset = offset_at(Counted(path), START + 150_000)
    assert len(asked) < 30
    assert sum(asked) < 3_000_000
    line = path.read_bytes()[offset:].split(b"\n", 1)[0]
    assert START + 149_000 < (time_of(line) or 0) <= START + 150_000


def test_lines_a_little_out_of_order_are_all_found(tmp_path):
    path = tmp_path / "ranks.log"
    ranks = [
        f"{stamp(START + number + 20 * (number % 2))} [rank{number % 2}]: {number}\n"
        for number in range(20_000)
    ]
    path.write_text("".join(ranks))
    found = list(between(LocalFile(path), since=START + 5_000, until=START + 5_099))
    times = [each.time or 0 for each in found]
    assert len(found) == 100
    assert min(times) == START + 5_000
    assert max(times) == START + 5_099


def test_a_log_without_times_has_no_stretch(make):
    text = b"loss 0.1\n" * 20_000
    assert list(between(make(text), since=START)) == []

"""Bytes that nobody meant: damaged archives, logs without lines, junk. Nothing crashes, nothing hangs."""

from __future__ import annotations

import contextlib
import gzip

import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.reading.compressed import CompressedText, decoder_of
from airflow_training.logs.reading.merge import clock_skews, merge
from airflow_training.logs.reading.search import Searcher
from airflow_training.logs.reading.source import LogUnreadable, lines
from airflow_training.logs.reading.tail import tail
from airflow_training.logs.reading.times import between, timed
from tests.examples import examples
from tests.logs.reading.conftest import served

TEXT = b"".join(b"2026-01-01 00:00:%02d step: %d loss: 0.5\n" % (n % 60, n) for n in range(2000))
PACKED = (gzip.compress(TEXT[:40_000]) + gzip.compress(TEXT[40_000:]), zstandard.compress(TEXT))
PIECES = st.sampled_from(
    [
        *(b"\n", b"\r", b"\r\n", b"\x00", b"\xff\xfe", b"\x1b[31m", b"\x1b[", b"[rank3]: ", b"3: "),
        *(b"2026-01-01 00:00:07,123 ", b"2026-13-41 99:99:99 ", b"9999-12-31T23:59:59+14:00 "),
        *(b"0001-01-01 00:00:00Z ", b"step: 10 loss: nan", b"\xe2\x82", b"error"),
    ]
)
JUNK = st.lists(st.one_of(PIECES, st.binary(max_size=12)), max_size=60).map(b"".join)


@settings(max_examples=examples(2000), deadline=None)
@given(
    packed=st.sampled_from(PACKED),
    cut=st.floats(0, 1),
    damage=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=4),
)
def test_a_damaged_archive_is_read_or_refused(packed, cut, damage):
    broken = bytearray(packed[: max(4, int(cut * len(packed)))])
    for where, byte in damage:
        broken[max(4, int(where * len(broken))) % len(broken)] = byte
    new_decoder = decoder_of(bytes(broken[:4]))
    if new_decoder is None:
        return
    source = CompressedText(served(bytes(broken)), new_decoder)
    with contextlib.suppress(LogUnreadable):
        found = b"".join(line.data for line in lines(source))
        if not damage:
            assert TEXT.startswith(found)
    with contextlib.suppress(LogUnreadable):
        source.read(50_000, 1000)
        source.read(10, 1000)


@settings(max_examples=examples(200), deadline=None)
@given(first=JUNK, second=JUNK, piece=st.integers(1, 50))
def test_junk_is_read_by_everything(first, second, piece):
    texts = [first, second]
    assert b"".join(line.data for line in lines(served(first, piece=piece))) == first
    assert first.endswith(tail(served(first, piece=piece), 3).data)
    for found in Searcher("error|rank").search(served(first, piece=piece), context=2):
        assert first[found.line.offset :].startswith(found.line.data)
    list(between(served(first), since=1_767_225_600.0, until=1_767_225_610.0))
    skews = clock_skews([served(text) for text in texts])
    merged = list(merge([timed(served(text)) for text in texts], skews=skews))
    for number, text in enumerate(texts):
        assert b"".join(each.line.line.data for each in merged if each.source == number) == text

"""Columns give what the layout itself reads of each line, or leave the line to it."""

from __future__ import annotations

import re
import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_training.logs.engine.layouts import Layout, Row, layout_of
from airflow_training.logs.engine.numbers import NUMBER

np = pytest.importorskip("numpy")

from airflow_training.logs.engine import columns  # noqa: E402  # only with numpy
from airflow_training.logs.metrics import formats  # noqa: E402  # it reads into columns

FORMATS = formats()
LINES = (
    b" iteration       12/     500 | consumed samples:          384 | elapsed time per iteration (ms): 1002.5 |"
    b" learning rate: 1.000E-04 | lm loss: 1.050000E+00 | loss scale: 1.0 | grad norm: 1.250 |",
    b"[rank3]: 2026-01-28 10:00:00,123 - INFO - epoch 3 - step: 12 - loss: 0.5 - accuracy: 0.25",
    b"2026-01-30T10:00:00.123456789Z stdout F step: 12  loss: 2.5  mfu: 12.5%  tps: 3,210",
    b" 12%|###    | 24/200 [00:12<01:10,  3.37it/s, loss=0.5]",
    b"{'loss': 2.5, 'grad_norm': 1.5, 'learning_rate': 1e-05, 'epoch': 0.5}",
    b"step: 12 loss: 0.5 lr: -1e-3 eta: 1:02:03",
    b"2026-01-31 10:00:00 5.5 loss: 2.5 step: 3",
)
LAYOUTS = {line: layout_of(line, FORMATS.parse_line(line)) for line in LINES}


@pytest.fixture(autouse=True)
def _single_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "WORTH_COLUMNS", 1)


def read(layout: Layout, line: bytes) -> Row | None:
    """Return what columns say of a line; None: they leave it to the layout."""
    block = bytearray(b"x\n" + line + b"\n" + line[::-1])
    found, begins = columns.lines_of(block, bytes(block), [(0, 0, 7, -1)], [3])
    assert begins.tolist() == [2]
    rows, told = columns.rows_of(found, lambda _: [layout], longest=8192)
    assert told.tolist() == [bool(rows)]
    if not rows:
        return None
    (row,) = rows
    assert (row.offsets.tolist(), row.lines.tolist()) == ([2], [9])
    return Row(row.values[0].tolist(), int(row.ranks[0]), float(row.times[0]))


def bits(row: Row) -> bytes:
    return struct.pack(f"{len(row.values) + 2}d", *row.values, row.rank, row.time)


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_lines_of_programs_are_read_as_columns(line: bytes):
    layout = LAYOUTS[line]
    assert layout.parsed is not None
    found, expected = read(layout, line), layout.read(line)
    assert found is not None
    assert expected is not None
    assert bits(found) == bits(expected)


def test_a_long_run_of_digits_is_left_to_the_layout():
    text = b"9" * 600 + b":30 step: 3 loss: 0.5"
    layout = layout_of(text, FORMATS.parse_line(text))
    assert layout.read(text) is not None
    assert read(layout, text) is None


@st.composite
def damaged(draw: st.DrawFn) -> tuple[Layout, bytes]:
    """Return a layout and a line that is about like one of it."""
    line = draw(st.sampled_from(LINES))
    text = bytearray(line)
    for _ in range(draw(st.integers(1, 3))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 2)))
        # bytes that numbers and times are made of, and few others
        text[begin:end] = bytes(
            draw(st.lists(st.sampled_from(b"0123459.,eE+-: ZU|]x"), max_size=3))
        )
    return LAYOUTS[line], bytes(text)


@settings(max_examples=800, deadline=None, derandomize=True)
@given(case=damaged())
@example(case=(LAYOUTS[LINES[6]], b"2026-01-31 10:00:005.5 loss: 2.5 step: 3"))
@example(case=(LAYOUTS[LINES[6]], b"2026-02-30 10:00:00 -5.5 loss: 2.5 step: 3"))
@example(case=(LAYOUTS[LINES[5]], b"step: 12 loss: 0.5 lr: -1e-3 eta: 1:02:03 more"))
@example(case=(LAYOUTS[LINES[5]], b"step: 12 loss: 1e999 lr: -0.0 eta: 1:02:03"))
@example(case=(LAYOUTS[LINES[1]], LINES[1].replace(b"10:00:00,123", b"10:00:61,1234567891")))
def test_a_line_is_read_as_the_layout_reads_it_or_left(case: tuple[Layout, bytes]):
    layout, line = case
    found = read(layout, line)
    if found is not None:
        expected = layout.read(line)
        assert expected is not None
        assert bits(found) == bits(expected)


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(
    texts=st.lists(
        st.one_of(
            st.floats().map(repr),
            st.floats(0, 1e6).map("{:.6E}".format),
            st.integers(0, 10**22).map(str),
            st.integers(0, 10**12).map("{:,}".format),
            st.text("0123456789.,eE+-", min_size=1, max_size=12),
        ).filter(lambda text: len(text) <= 24),
        min_size=1,
        max_size=8,
    )
)
@example(texts=["1,234,567.5e3", "1,23", "1234,567", ",123", "1,2345", "-1,234"])
@example(texts=["9007199254740993", "1e23", "-0.0", "5.", ".5", "1e5e", "+-1"])
def test_numbers_are_read_to_the_last_bit(texts: list[str]):
    window = np.array([[*text.encode().ljust(24, b"7")] for text in texts], dtype=np.uint8)
    found = columns.floats(window, np.array([len(text) for text in texts]))
    for text, value in zip(texts, found.tolist(), strict=True):
        whole = re.fullmatch(NUMBER, text)
        expected = float(text.replace(",", "")) if whole else float("nan")
        assert struct.pack("d", value) == struct.pack("d", expected) or value != value != expected

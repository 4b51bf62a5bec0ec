"""The compiled readers give the same bits as Python, or say that they are not sure."""

from __future__ import annotations

import struct

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.examples import examples

np = pytest.importorskip("numpy")
pytest.importorskip("numba")

from airflow_training.logs.engine import compiled  # noqa: E402  # only with numba
from airflow_training.logs.engine.compiled_walker import address_of  # noqa: E402
from airflow_training.logs.lines.prefixes import time_of  # noqa: E402


def read(function, text, *rest):
    data = text.encode() + b"| tail"
    return function(address_of(data), 0, len(text), *rest)


def bits(value: float) -> bytes:
    return struct.pack("d", value)


@settings(max_examples=examples(3000), derandomize=True, deadline=None)
@given(
    value=st.floats(allow_nan=False, allow_infinity=False),
    form=st.sampled_from(["r", ".6E", ".3f", ".17g"]),
)
@example(value=-1.5, form="r")
@example(value=-0.0, form="r")
@example(value=5e-324, form="r")
@example(value=1.7976931348623157e308, form="r")
def test_numbers_are_read_to_the_last_bit(value, form):
    text = repr(value) if form == "r" else format(value, form)
    if len(text) > 60:
        return
    found, end = read(compiled.number, text)
    assert (end, bits(found)) == (len(text), bits(float(text)))


@settings(max_examples=examples(2000), derandomize=True, deadline=None)
@given(digits=st.integers(0, 10**19 - 1), exponent=st.integers(-300, 300))
@example(digits=9007199254740993, exponent=0)  # half way between two doubles
@example(digits=9007199254740993, exponent=23)
@example(digits=10**19 - 1, exponent=-19)
def test_any_nineteen_digits_are_read_to_the_last_bit(digits, exponent):
    text = f"{digits}e{exponent}"
    found, end = read(compiled.number, text)
    assert (end, bits(found)) == (len(text), bits(float(text)))


def test_digits_behind_the_end_are_no_part_of_a_number():
    text = b"1.23456789012345678"
    assert compiled.number(address_of(text), 0, len(text) - 1)[1] == -1
    assert compiled.number(address_of(text), 0, len(text)) == (float(text), len(text))


@pytest.mark.parametrize(
    ("text", "value", "end"),
    [
        ("1,234,567", 1234567.0, 9),
        ("1,234,56", 1234.0, 5),
        ("1,2345", 1234.0, 5),
        ("1234,567", 1234.0, 4),
        ("12.", 12.0, 3),
        (".5", 0.5, 2),
        ("7e", 7.0, 1),
        ("7e+", 7.0, 1),
        ("+3", 3.0, 2),
        ("-inf", float("-inf"), 4),
        ("Infinity", float("inf"), 8),
        ("0.00000000000000000000012345", 1.2345e-22, 28),
    ],
)
def test_numbers_end_where_they_end(text, value, end):
    assert read(compiled.number, text) == (value, end)


@pytest.mark.parametrize("text", ["", "-", ".", "e5", "abc", "--1"])
def test_what_is_no_number_is_left_to_python(text):
    assert read(compiled.number, text)[1] == -1


def test_nan_is_a_number():
    value, end = read(compiled.number, "NaN")
    assert np.isnan(value)
    assert end == 3


@settings(max_examples=examples(500), derandomize=True, deadline=None)
@given(
    moment=st.datetimes(),
    form=st.sampled_from(
        ["%Y-%m-%d %H:%M:%S", "%Y/%m/%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S.%fZ", "%Y-%m-%d, %H:%M:%S"]
    ),
    zone=st.sampled_from(["", " UTC", "+05:30", "-0800", " +01:00"]),
)
def test_times_are_read_as_python_reads_them(moment, form, zone):
    text = moment.strftime(form)
    text = text if text.endswith("Z") else text + zone
    seconds, end = read(compiled.timestamp, text)
    if end >= 0:
        assert end == len(text)
        expected = time_of(text.encode())
        assert expected is not None
        assert bits(seconds) == bits(expected)
    else:
        assert moment.year < 1000


@pytest.mark.parametrize(
    "text", ["2024-02-30 10:00:00", "2024-13-01 10:00:00", "2024-01-01 25:00:00"]
)
def test_times_that_do_not_exist_are_left_to_python(text):
    assert read(compiled.timestamp, text)[1] == -1


@pytest.mark.parametrize(
    ("text", "seconds"), [("01:10", 70.0), ("9:10:28", 33028.0), ("0:05", 5.0), ("45", 45.0)]
)
def test_clocks_are_read_in_seconds(text, seconds):
    assert read(compiled.clock, text) == (seconds, len(text))


@settings(max_examples=examples(300), derandomize=True, deadline=None)
@given(
    text=st.binary(max_size=100),
    start=st.integers(0, 40),
)
def test_letters_add_up_however_long_a_line_is(text, start):
    start = min(start, len(text))
    address = address_of(text)
    by_byte = [compiled.letters(address, place, place + 1) for place in range(start, len(text))]
    count = sum(each >> 16 for each in by_byte)
    assert compiled.letters(address, start, len(text)) == (
        sum(each & 0xFFFF for each in by_byte) & 0xFFFF | count << 16
    )
    without = bytes(byte for byte in text if not 97 <= byte | 32 <= 122 or byte | 32 == 101)
    assert compiled.letters(address_of(without), 0, len(without)) == 0


def test_lines_with_other_letters_have_other_sums():
    texts = [
        f"{one}{other} holds {count} bytes".encode()
        for one in "abcdghij"
        for other in "stuvwxyz"
        for count in range(9)
    ]
    sums = {compiled.letters(address_of(text), 0, len(text)) for text in texts}
    assert len(sums) == 64

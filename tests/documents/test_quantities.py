"""Kubernetes quantities."""

from __future__ import annotations

import pytest

from airflow_training.documents.quantities import bytes_text, parse_quantity, quantity_error


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        (2, 2),
        (0.5, 0.5),
        ("500m", 0.5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("5.", 5),
        ("+1", 1),
        ("1e3", 1000),
        ("1E3", 1000),
        ("1E", 1e18),
        ("2k", 2000),
        ("1Ki", 1024),
        ("1.5Gi", 1.5 * 2**30),
        ("1M", 1e6),
        ("3Ti", 3 * 2**40),
        ("100n", 1e-7),
        ("100u", 1e-4),
        ("0", 0),
    ],
)
def test_a_quantity_has_a_value(text, value):
    assert quantity_error(text) == ""
    assert parse_quantity(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1GB", "'GB' may mean G or Gi"),
        ("1gi", "'gi' may mean Gi"),
        ("1g", "'g' may mean G or Gi"),
        ("", "no quantity"),
        ("one", "no quantity"),
        ("1 Gi", "no quantity"),
        ("1Gi\n", "no quantity"),
        ("1e1e1", "no quantity"),
        ("1mi", "'mi' may mean Mi"),
        ("-1", "below zero"),
        (-1, "below zero"),
        (True, "must be a quantity"),
        (None, "must be a quantity"),
        ([1], "must be a quantity"),
    ],
)
def test_what_is_no_quantity_says_why(text, message):
    assert message in quantity_error(text)
    with pytest.raises(ValueError, match=r"quantity|zero"):
        parse_quantity(text)


@pytest.mark.parametrize(
    ("number", "text"),
    [(12 << 30, "12Gi"), (1536 << 20, "1536Mi"), (3 << 10, "3Ki"), (1000, "1000"), (0, "0")],
)
def test_bytes_are_written_as_short_as_they_can_be_told_exactly(number, text):
    assert bytes_text(number) == text
    assert parse_quantity(text) == number

"""Amounts as people type them: decimal numbers, never floats."""

from __future__ import annotations

from decimal import Decimal, InvalidOperation

from airflow_training.cli.output import fail

__all__ = ["parse_money", "parse_number"]


def parse_number(text: str, *, option: str) -> Decimal:
    """Return a decimal number that is not below zero; raises InputError."""
    number = _decimal(text, option=option)
    if number < 0:
        raise fail(option, "is below zero", code="out_of_range", value=text)
    return number


def parse_money(text: str, *, option: str) -> Decimal:
    """Return money with at most four places; raises InputError."""
    number = _decimal(text, option=option)
    if number != number.quantize(Decimal("0.0001")):
        raise fail(option, "money has at most four places", code="out_of_range", value=text)
    return number


def _decimal(text: str, *, option: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise fail(option, f"{text!r} is no number", value=text, hint="for example 12.50") from None
    if not number.is_finite() or abs(number) >= 10**12 or len(f"{number:f}") > 40:
        raise fail(option, "is too large or too long", code="out_of_range", value=text)
    return number

"""What a template may ask of a date: a few parts and readings, from two tables and nowhere else.

A date is ISO 8601 text until then. No attribute of a Python object is ever looked up by a name
that a document gave.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow_training.documents.times import parse_time

__all__ = ["DATE_NAMES", "METHODS", "PARTS", "call_method", "format_problem", "part"]

DATE_NAMES = frozenset({"logical_date", "data_interval_start", "data_interval_end"})
"""Names whose values are dates."""

PARTS: Mapping[str, Callable[[dt.datetime], int]] = {
    "year": lambda at: at.year,
    "month": lambda at: at.month,
    "day": lambda at: at.day,
    "hour": lambda at: at.hour,
    "minute": lambda at: at.minute,
    "second": lambda at: at.second,
}
"""`{{ logical_date.year }}`: numbers."""

METHODS: Mapping[str, tuple[str, int, Callable[..., Any]]] = {
    "date": ("date()", 0, lambda at: at.date().isoformat()),
    "isoformat": ("isoformat()", 0, lambda at: at.isoformat()),
    "strftime": ("strftime('%Y-%m-%d')", 1, lambda at, how: at.strftime(how)),
    "timestamp": ("timestamp()", 0, lambda at: at.timestamp()),
}
"""`{{ logical_date.strftime('%Y') }}`: how it is shown, its number of arguments, what it does."""

_DIRECTIVES = "aAwdbBmyYHIpMSfzZjUWuGV%"
"""The same on every platform. Others mean nothing there, or take widths (`%99999999Y`)."""


def format_problem(text: str) -> str:
    """Return why `strftime` may not be given this format; "" when it may."""
    for directive in re.findall(r"%(.?)", text, flags=re.DOTALL):
        if not directive or directive not in _DIRECTIVES:
            return f"strftime does not know '%{directive}', it knows {_known()}"
    return ""


def part(text: str, name: str) -> int:
    """Return one of PARTS of a date; raises ValueError for a text that is no date."""
    return PARTS[name](_read(text))


def call_method(text: str, method: str, args: Sequence[Any]) -> Any:
    """Call one of METHODS on a date; raises ValueError for a text that is none."""
    return METHODS[method][2](_read(text), *args)


def _read(text: str) -> dt.datetime:
    return parse_time(text)


def _known() -> str:
    return " ".join(f"%{letter}" for letter in _DIRECTIVES)

"""What the text of a slot is worth, one at a time: the reference for the columns of the engine."""

from __future__ import annotations

import math
import re

from airflow_training.logs.metrics.numbers import Kind

_DAYS = re.compile(rb"([0-9]+) days?, ")


def convert(text: bytes, kind: Kind, scale: float) -> float:
    """Return the value of the text of a slot of a kind that has one."""
    if kind == "clock":
        return _seconds(text) * scale
    number = float(text.replace(b",", b""))
    if kind == "divided":
        return number / scale
    if kind == "inverse":
        return scale / number if number else math.inf
    return number * scale


def _seconds(text: bytes) -> float:
    """Return the seconds of a clock."""
    if b"?" in text:
        return math.nan
    days = _DAYS.match(text)
    parts = (text[days.end() :] if days else text).split(b":")
    clock = sum(float(part) * 60.0**power for power, part in enumerate(reversed(parts)))
    return clock + (86400.0 * float(days[1]) if days else 0.0)

"""Ages and times as people type them."""

from __future__ import annotations

import math
from datetime import timezone

from airflow_training.cli.output import fail
from airflow_training.documents.times import parse_time

__all__ = ["age_seconds", "parse_moment"]

_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}


def age_seconds(text: str, *, option: str) -> float:
    """Return the seconds of `90s`, `15m`, `12h`, `30d` or `2w`; raises InputError."""
    seconds = _age(text)
    if seconds is None:
        raise fail(option, f"{text!r} is no age", value=text, hint="for example 12h or 30d")
    return seconds


def parse_moment(text: str, *, option: str, now: float) -> float:
    """Return epoch seconds of an ISO 8601 time (UTC unless it names a zone) or of an age.

    Raises InputError.
    """
    age = _age(text)
    if age is not None:
        return max(0.0, now - age)
    try:
        written = parse_time(text)
    except ValueError:
        hint = "for example 15m (ago), 2026-01-31 or 2026-01-31T08:30:00Z"
        raise fail(option, f"{text!r} is no time", value=text, hint=hint) from None
    if written.tzinfo is None:
        written = written.replace(tzinfo=timezone.utc)
    return written.timestamp()


def _age(text: str) -> float | None:
    try:
        seconds = float(text[:-1]) * _SECONDS[text[-1:]]
    except (ValueError, KeyError):
        return None
    return seconds if 0 <= seconds < math.inf else None

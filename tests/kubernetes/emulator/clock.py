"""Time as the API writes it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone


def now() -> datetime:
    return datetime.now(timezone.utc)


def stamp(moment: datetime | None = None) -> str:
    """Return RFC 3339 in whole seconds, as metav1.Time."""
    return (moment or now()).strftime("%Y-%m-%dT%H:%M:%SZ")


def parsed(text: str) -> datetime:
    """Return the moment of an RFC 3339 text; raises ValueError."""
    text = text.replace("Z", "+00:00")
    head, dot, tail = text.partition(".")
    if dot:  # Python 3.10 takes three or six digits, never nine
        digits = tail[: -len("+00:00")]
        text = f"{head}.{digits[:6].ljust(6, '0')}{tail[-len('+00:00') :]}"
    return datetime.fromisoformat(text)


def later(seconds: float) -> datetime:
    return now() + timedelta(seconds=seconds)

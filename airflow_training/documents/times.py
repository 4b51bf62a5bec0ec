"""Times as text: ISO 8601, read alike by every Python."""

from __future__ import annotations

import re
from datetime import datetime, timezone

__all__ = ["parse_time", "utc_text"]


def parse_time(text: str) -> datetime:
    """Return the time that ISO 8601 text names; without a zone where it names none.

    Python 3.10 reads neither `Z` nor a fraction of other than 3 or 6 digits. Raises ValueError.
    """
    text = re.sub(r"[zZ]$", "+00:00", text)
    return datetime.fromisoformat(
        re.sub(r"\.(\d+)", lambda found: "." + found[1][:6].ljust(6, "0"), text)
    )


def utc_text(at: float) -> str:
    """Return epoch seconds as `2026-01-31T12:00:00Z`."""
    text = datetime.fromtimestamp(at, tz=timezone.utc).isoformat(timespec="seconds")
    return f"{text.removesuffix('+00:00')}Z"

"""Times as text: ISO 8601, read alike by every Python."""

from __future__ import annotations

import re
from datetime import datetime

__all__ = ["parse_time"]


def parse_time(text: str) -> datetime:
    """Return the time that ISO 8601 text names; without a zone where it names none.

    Python 3.10 reads neither `Z` nor a fraction of other than 3 or 6 digits. Raises ValueError.
    """
    text = re.sub(r"[zZ]$", "+00:00", text)
    return datetime.fromisoformat(
        re.sub(r"\.(\d+)", lambda found: "." + found[1][:6].ljust(6, "0"), text)
    )

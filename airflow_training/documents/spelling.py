"""Which name somebody may have meant: near words only. Imports nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["did_you_mean"]

_MOST_SLIPS = 6


def did_you_mean(value: Any, allowed: Iterable[Any]) -> str:
    """Return `did you mean 'x'?` for the nearest allowed text; nothing where none is near.

    Near is a quarter of the letters of both, and six at most: `tpp` is near `tp` and `ful` is near
    `full`, but `foo` is not near `for`. Case, hyphens and underscores do not count.
    """
    if not isinstance(value, str) or not value:
        return ""
    wanted = _folded(value)
    nearest, least = "", len(wanted)
    for name in allowed:
        if isinstance(name, str):
            folded = _folded(name)
            limit = min(least - 1, (len(wanted) + len(folded)) // 4, _MOST_SLIPS)
            found = _distance(wanted, folded, limit=limit)
            if found is not None:
                nearest, least = name, found
    return f"did you mean '{nearest}'?" if nearest else ""


def _folded(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _distance(one: str, other: str, *, limit: int) -> int | None:
    """Return how many letters were left out, added or swapped with the next; None beyond `limit`.

    Another letter in the place of one is two: short words of one letter's difference mean
    different things.
    """
    if abs(len(one) - len(other)) > limit:
        return None
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i] + [limit + 1] * len(other)
        for j in range(max(1, i - limit), min(len(other), i + limit) + 1):
            if letter == other[j - 1]:
                row[j] = last[j - 1]
                continue
            row[j] = min(row[j - 1], last[j]) + 1
            if i > 1 < j and letter == other[j - 2] and one[i - 2] == other[j - 1]:
                row[j] = min(row[j], before[j - 2] + 1)
        if min(row) > limit:
            return None
        before, last = last, row
    return last[-1] if last[-1] <= limit else None

"""The rank that a line names in its own words, beside what a launcher wrote before it. Pure."""

from __future__ import annotations

import re

__all__ = ["rank_in"]

_RANK = re.compile(
    r"\[(?:PG [^\]]*?)?(?:Global )?[Rr]ank:? ?(\d{1,6})\]|\bon rank (\d{1,6})\b|^[Rr]ank (\d{1,6})\b"
    r"|-- Process (\d{1,6}) terminated|\brank=\[(\d{1,6})\]|\bRank (\d{1,6}) crashed"
    r"|\bprocess rank (\d{1,6}) with PID|: task (\d{1,6}): |\bRank (\d{1,6}), node "
    r"|\bRank (\d{1,6}) is running collective|did not receive grad for rank (\d{1,6})|/job:jax_worker/replica:0/task:(\d{1,6}) has "
    r"been set to ERROR"
)


def rank_in(text: str) -> int | None:
    """Return the first rank that a text says it is about, None for none."""
    match = _RANK.search(text)
    if match is None:
        return None
    return int(next(group for group in match.groups() if group is not None))

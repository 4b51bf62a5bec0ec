"""The rank that a line names in its own words, beside what a launcher wrote before it. Pure."""

from __future__ import annotations

import re

__all__ = ["absent_rank_in", "rank_above", "rank_in"]

_RANK = re.compile(
    r"\[(?:PG [^\]]*?)?(?:Global )?[Rr]ank:? ?(\d{1,6})\]|\bon rank (\d{1,6})\b|^[Rr]ank (\d{1,6})\b"
    r"|-- Process (\d{1,6}) terminated|\brank=\[(\d{1,6})\]|\bRank (\d{1,6}) crashed"
    r"|\bprocess rank (\d{1,6}) with PID|: task (\d{1,6}): |\bRank (\d{1,6}), node |: \(RANK (\d{1,6})\)"
    r"|\bRank (\d{1,6}) is running collective|did not receive grad for rank (\d{1,6})|/job:jax_worker/replica:0/task:(\d{1,6}) has "
    r"been set to ERROR"
)


def rank_in(text: str) -> int | None:
    """Return the first rank that a text says it is about, None for none."""
    match = _RANK.search(text)
    if match is None:
        return None
    return int(next(group for group in match.groups() if group is not None))


_ABOVE = re.compile(
    r"(?<!to )(?<!from )(?<!with )\b(?:[Rr]ank|RANK)[ :=#]{0,3}(\d{1,6})\b|\b(?:process|Process|[Ww]orker|[Tt]rainer|[Tt]ask)[ #]{1,2}(\d{1,6})\b.{0,40}"
    r"\b(?:fail|crash|rais|exit|terminat|error|exception|died)"
)


def rank_above(text: str) -> int | None:
    """Return the rank whose traceback a line announces, None for none: `[Rank 2 Error Snippet]:`, `worker 3 failed:`."""
    match = _ABOVE.search(text)
    if match is None:
        return None
    return int(next(group for group in match.groups() if group is not None))


_ABSENT = re.compile(
    r"\b[Rr]anks? \[?(\d{1,6})[\d, \]]{0,200} ?(?:failed to pass monitoredBarrier|are the lagging ranks)"
    r"|\b[Mm]issing ranks: ?(?:\n *)?\[?(\d{1,6})\b"
    r"|\b[Rr]ank (\d{1,6}) (?:did not|didn't|has not|hasn't|never) (?:join|enter|reach|call|start|arrive)"
    r"|timed out task names:\s{1,4}(?:/job:\w+/replica:\d+/)?task:(\d{1,6})\b"
    r"|stopped sending heartbeats\)?:?\s{1,4}/job:\w+/replica:\d+/task:(\d{1,6})\b|caused the desync are:[^\[]{0,40}\[(\d{1,6})[,\]]"
    r"|while waiting for send/recv from rank (\d{1,6})\b"
)


def absent_rank_in(text: str) -> int | None:
    """Return the first rank that a text says others waited for, None for none.

    As a monitored barrier, the desync report of c10d, Horovod and the coordination service of JAX tell it.
    """
    match = _ABSENT.search(text)
    if match is None:
        return None
    return int(next(group for group in match.groups() if group is not None))

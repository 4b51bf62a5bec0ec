"""Signatures that were found: how many of each, and the first and last of them with the lines around."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_training.logs.engine.cleaning import clean, parts, shown
from airflow_training.logs.engine.prefixes import prefix
from airflow_training.logs.model import Hit, Origin

FIRST = 16
"""Hits kept of each signature and rank, beside the last."""
LONGEST_TEXT = 2000
LONGEST_CONTEXT = 500
CONTEXT_LINES = 40
CONTEXT_BYTES = 65_536
"""Looked at on either side of a hit."""


@dataclass
class Hits:
    """Hits of one piece of a file, added in order."""

    origin: Origin
    first: dict[tuple[str, int | None], list[Hit]] = field(default_factory=dict)
    last: dict[tuple[str, int | None], Hit] = field(default_factory=dict)
    counts: dict[tuple[str, int | None], int] = field(default_factory=dict)

    def add(self, hit: Hit) -> None:
        """Take the next hit."""
        key = (hit.signature, hit.rank)
        self.counts[key] = self.counts.get(key, 0) + 1
        kept = self.first.setdefault(key, [])
        if len(kept) < FIRST:
            kept.append(hit)
        else:
            self.last[key] = hit

    def kept(self) -> tuple[Hit, ...]:
        """Return what was kept, in order of the log."""
        found = [hit for hits in self.first.values() for hit in hits]
        found.extend(self.last.values())
        return tuple(sorted(found, key=lambda hit: (hit.offset, hit.signature)))


def text_around(text: bytes, start: int) -> str:
    """Return a line cut to 2,000 characters around the match that starts at `start`."""
    if len(text) <= LONGEST_TEXT:
        return text.decode(errors="replace")
    begin = max(0, min(start - LONGEST_TEXT // 4, len(text) - LONGEST_TEXT))
    return text[begin : begin + LONGEST_TEXT].decode(errors="replace")


def with_context(hit: Hit, own: int | None, read: Callable[[int, int], bytes]) -> Hit:
    """Return the hit with the lines of its rank around it and, if it has none, the time of a line before.

    `own` is the rank of lines that name none, `read(start, end)` returns bytes of the log.
    """
    start = max(0, hit.offset - CONTEXT_BYTES)
    data = read(start, hit.offset)
    if start:
        data = data[data.find(b"\n") + 1 :]
    before, time = _lines(data, hit.rank, own)
    data = read(hit.offset, hit.offset + CONTEXT_BYTES)
    edges = [end for end in (data.find(mark) for mark in (b"\n", b"\r", b"\b")) if end >= 0]
    after, _ = _lines(data[min(edges) :] if edges else b"", hit.rank, own)
    return replace(
        hit,
        time=time if hit.time is None else hit.time,
        before=tuple(before[-CONTEXT_LINES:]),
        after=tuple(after[:CONTEXT_LINES]),
    )


def _lines(data: bytes, rank: int | None, own: int | None) -> tuple[list[str], float | None]:
    """Return the parts of a rank as text, and the time of the last part that has one."""
    lines = []
    time = None
    for start, end, _ in parts(data):
        text = clean(data[start:end])
        head = prefix(text)
        time = time if head.time is None else head.time
        if (own if head.rank is None else head.rank) == rank:
            lines.append(shown(text[head.length :], LONGEST_CONTEXT))
    return lines, time

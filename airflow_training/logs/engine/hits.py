"""Signatures that were found: how many of each, and the first and last of them with the lines around."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from airflow_training.logs.engine.context_lines import Surroundings
from airflow_training.logs.model import Hit

FIRST = 16
"""Hits kept of each signature and rank, beside the last; where ends alone are wanted, so many of each end."""
MOST_KEPT = 20_000
"""Hits kept with their context, the last of each signature and rank aside: some 64 MB at worst."""
MOST_KEYS = 50_000
"""Signatures times ranks; hits of further ones count as of no rank."""
LONGEST_TEXT = 2000

_Key = tuple[str, "int | None"]


class HitList:
    """Hits of one stretch of a log, added in order."""

    def __init__(self) -> None:
        self.counts: dict[_Key, int] = {}
        self._first: dict[_Key, list[Hit]] = {}
        self._last: dict[_Key, Hit] = {}
        self._kept = 0
        self._bare: set[tuple[_Key, int]] = set()
        """Which of them have no context yet: a place in `_first`, or -1 for the last."""
        self._ends: dict[str, list[Hit]] = {}
        """Of signatures whose ends alone are wanted: the first and the last, of all ranks together."""
        self._bare_ends: set[tuple[str, int]] = set()
        """Which of them have no context yet: signature and offset."""

    def add(self, hit: Hit) -> None:
        """Take the next hit."""
        key = (hit.signature, hit.rank)
        if key not in self.counts and len(self.counts) >= MOST_KEYS:
            hit = replace(hit, rank=None)
            key = (hit.signature, None)
        self.counts[key] = self.counts.get(key, 0) + 1
        first = self._first.setdefault(key, [])
        if not first or (len(first) < FIRST and self._kept < MOST_KEPT):
            self._bare.add((key, len(first)))
            first.append(hit)
            self._kept += 1
        else:
            self._bare.add((key, -1))
            self._last[key] = hit

    def add_ends(self, signature: str, hits: Sequence[Hit]) -> None:
        """Take the next hits of a signature whose ends alone are wanted; those between may be left out."""
        self._bare_ends.update((signature, hit.offset) for hit in hits)
        self._keep_ends(signature, [*self._ends.get(signature, ()), *hits])

    def has_first(self, signature: str, before: int) -> bool:
        """Return whether the first hits of such a signature were all found before an offset."""
        known = self._ends.get(signature, ())
        return len(known) >= FIRST and known[FIRST - 1].offset < before

    def _keep_ends(self, signature: str, hits: list[Hit]) -> None:
        hits.sort(key=lambda hit: hit.offset)
        between = hits[FIRST:-FIRST]
        self._bare_ends.difference_update((signature, hit.offset) for hit in between)
        self._ends[signature] = [*hits[:FIRST], *hits[FIRST:][-FIRST:]]

    def complete(self, read: Callable[[int, int], bytes], own: int | None, *, until: int) -> None:
        """Give hits before the offset `until` the lines around them.

        `own` is the rank of lines that name none, `read(start, end)` returns bytes of the log.
        """
        bare = [(self._hit(key, place), key, place) for key, place in self._bare]
        bare = sorted((each for each in bare if each[0].offset < until), key=_by_offset)
        surroundings = Surroundings(read, own)
        for hit, key, place in bare:
            self._bare.discard((key, place))
            hit = surroundings.add_to(hit)
            if place < 0:
                self._last[key] = hit
            else:
                self._first[key][place] = hit
        for signature, offset in sorted(self._bare_ends, key=lambda each: each[1]):
            if offset < until:
                self._bare_ends.discard((signature, offset))
                ends = self._ends[signature]
                self._ends[signature] = [
                    surroundings.add_to(hit) if hit.offset == offset else hit for hit in ends
                ]

    def _hit(self, key: _Key, place: int) -> Hit:
        return self._last[key] if place < 0 else self._first[key][place]

    def reopen(self, offset: int) -> None:
        """Let the hits from `offset` on have their context taken again: lines came behind them."""
        for key, first in self._first.items():
            self._bare.update((key, n) for n, hit in enumerate(first) if hit.offset >= offset)
        for key, hit in self._last.items():
            if hit.offset >= offset:
                self._bare.add((key, -1))
        for signature, ends in self._ends.items():
            self._bare_ends.update((signature, hit.offset) for hit in ends if hit.offset >= offset)

    def append(self, later: HitList, *, lines_before: int) -> None:
        """Take over the hits of the next stretch, whose lines count from `lines_before`."""
        for key, count in later.counts.items():
            self.counts[key] = self.counts.get(key, 0) + count
            ours = self._first.setdefault(key, [])
            theirs = [*later._first[key], *([later._last[key]] if key in later._last else [])]
            theirs = [replace(hit, line=hit.line + lines_before) for hit in theirs]
            room = FIRST - len(ours)
            ours.extend(theirs[:room])
            if theirs[max(room, 0) :]:
                self._last[key] = theirs[-1]
        for signature, ends in later._ends.items():
            moved = [replace(hit, line=hit.line + lines_before) for hit in ends]
            self._keep_ends(signature, [*self._ends.get(signature, ()), *moved])

    def kept(self) -> tuple[Hit, ...]:
        """Hits that were kept, in order of the log."""
        found = [hit for hits in self._first.values() for hit in hits]
        found.extend(self._last.values())
        found.extend(hit for ends in self._ends.values() for hit in ends)
        return tuple(sorted(found, key=lambda hit: (hit.offset, hit.signature)))


def text_around(text: bytes, start: int) -> str:
    """Return a line cut to 2,000 characters around the match that starts at `start`."""
    if len(text) <= LONGEST_TEXT:
        return text.decode(errors="replace")
    begin = max(0, min(start - LONGEST_TEXT // 4, len(text) - LONGEST_TEXT))
    return text[begin : begin + LONGEST_TEXT].decode(errors="replace")


def _by_offset(bare: tuple[Hit, _Key, int]) -> int:
    return bare[0].offset

"""One pass over a stretch of a log, block by block: hits of signatures, and rows of values."""

from __future__ import annotations

import contextlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from airflow_training.logs.engine.automaton import Automaton, automaton_for
from airflow_training.logs.engine.columns import OpenTable, rows_below
from airflow_training.logs.engine.formats import (
    LONGEST_METRIC_LINE,
    Builder,
    Formats,
)
from airflow_training.logs.engine.hits import FIRST, HitList, text_around
from airflow_training.logs.engine.layouts import LineLayout, LineValues
from airflow_training.logs.engine.learning import LayoutTable
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.rows import Rows, as_rows
from airflow_training.logs.engine.walking import PlainWalker, UnparsedLines, Walker
from airflow_training.logs.engine.wrapped import JoinedRecords, join_wrapped, may_wrap
from airflow_training.logs.lines.prefixes import LinePrefix, prefix
from airflow_training.logs.model import Hit, Origin

BLOCK_BYTES = 1 << 20
NOTICED = 16
"""Lines of the rest of each block that are looked at to learn what comes again and again,"""
WORTH_LEARNING = 8
"""where the rest is more than this part of the block."""
LOOKED_AT_BYTES = 64 << 10
"""Of the beginning of a stretch, which tell whether records are wrapped in it."""
LOOKED_AT_ONCE = 2048
"""Bytes of lines, from either end of a block, in which hits are looked for whose ends alone are wanted."""
SMALL_BYTES = 4 << 20
"""Below this, loading the compiled code takes longer than doing without."""


class Machine:
    """What the scan of any number of logs needs: an automaton, a walker, and the layouts learned so far."""

    def __init__(
        self,
        signatures: Sequence[Pattern],
        formats: Formats | None,
        *,
        automaton: Automaton,
        walker: Walker,
    ) -> None:
        self.signatures = signatures
        self.formats = formats
        self.automaton = automaton
        self.walker = walker
        self.learned = LayoutTable(formats)

    def observe_line(self, rest: bytearray | memoryview) -> None:
        """Look at some lines of the rest of a block: which come again and again?"""
        data = bytes(rest)
        for place in range(0, len(data), max(1, len(data) // NOTICED)):
            start = data.rfind(b"\n", 0, place) + 1
            end = data.find(b"\n", place)
            if 0 < end - start <= LONGEST_METRIC_LINE:
                self.learned.observe_line(data[start:end])

    def share_layouts(self) -> None:
        """Let the walker know what was learned since the last time."""
        if self.learned.full:
            self.learned.forget()
            self.walker.forget()
        for line, layout in self.learned.new:
            self.walker.register_layout(line, layout)
        self.learned.new.clear()


def machine_for(
    signatures: Sequence[Pattern], formats: Formats | None, *, size: int | None
) -> Machine:
    """Return the fastest machine there is for `size` bytes of logs (None: not known)."""
    anchors = () if formats is None else formats.anchors()
    small = _is_small(size)
    walker: Walker = PlainWalker()
    if not small:
        with contextlib.suppress(ImportError):
            from airflow_training.logs.engine.compiled_walker import CompiledWalker

            walker = CompiledWalker(signatures, size=BLOCK_BYTES)
    automaton = automaton_for(signatures, anchors, size=size)
    return Machine(signatures, formats, automaton=automaton, walker=walker)


def _is_small(size: int | None) -> bool:
    return size is not None and size < SMALL_BYTES


_SPARE: dict[bool, Machine] = {}
"""At most one, that has done its work, by whether it is for small logs."""


@contextlib.contextmanager
def borrowed_machine(
    signatures: Sequence[Pattern], formats: Formats | None, *, size: int | None
) -> Iterator[Machine]:
    """Lend a machine as of `machine_for`: the last one of this process if it is for the same, as it knows layouts already.

    Nobody else has it meanwhile, so that threads may scan at the same time.
    """
    small = _is_small(size)
    machine = _SPARE.pop(small, None)
    if machine is None or (machine.signatures, machine.formats) != (signatures, formats):
        machine = machine_for(signatures, formats, size=size)
    yield machine
    _SPARE[small] = machine


class StretchScan:
    """The scan of one stretch of a log that begins at a line; lines count from 1 within it."""

    def __init__(
        self,
        origin: Origin,
        machine: Machine,
        *,
        offset: int,
        carry: Mapping[str, float] | None = None,
        table: OpenTable | None = None,
    ) -> None:
        """`table`: that is open, as what comes before the stretch says."""
        self.origin = origin
        self.machine = machine
        self.offset = offset
        """Of the first byte that was not taken yet."""
        self._start = offset
        self._wraps = False
        self._walked = 0
        """Line ends before that, as the walker saw them,"""
        self._ends_before = 0
        """and those in records that were joined."""
        self._joined = JoinedRecords(0)
        """Of the block."""
        self.table = table
        """That the block before ended in."""
        self._heads: list[tuple[int, int]] = []
        """Where the lines that name columns begin and end in the block."""
        self.hits = HitList()
        self.builder: Builder | None = (
            None if machine.formats is None else machine.formats.builder(carry)
        )

    def take(self, block: bytearray, size: int, *, complete: bool) -> int:
        """Take the next `size` bytes and return how many are done with; the others come again with more behind them."""
        done = 0
        base = self.offset
        self._joined, self._heads = JoinedRecords(size), []
        lines_before = self._walked
        if self.builder is not None and self._may_wrap(block, size):
            self._joined = join_wrapped(block, size, complete=complete)
            size = self._joined.size
        while True:
            walked = self.machine.walker.walk(block, done, size, self._walked, complete=complete)
            self._look(walked.rest, block, base, metrics=self.builder is not None)
            self._look(walked.aside, block, base, metrics=False)
            if self.builder is not None:
                for rows in walked.rows:
                    moved = self._moved(rows, base)
                    moved.add_to(self.builder, rank=self.origin.rank)
            self._walked = walked.line
            much = len(walked.rest.data) * WORTH_LEARNING > walked.consumed - done
            if much and self.machine.walker.learns:
                self.machine.observe_line(walked.rest.data)
            self.machine.share_layouts()
            if not walked.full:
                break
            done = walked.consumed
        if self.table is not None or self._heads:
            self._read_tables(block, walked.consumed, base, lines_before)
        self.offset = base + walked.consumed
        self._ends_before += len(self._joined.ends)
        return walked.consumed

    def _may_wrap(self, block: bytearray, size: int) -> bool:
        """Return whether records may be wrapped in this log: its beginning tells."""
        if not self._wraps and self.offset - self._start < LOOKED_AT_BYTES:
            self._wraps = may_wrap(block, size)
        return self._wraps

    @property
    def line(self) -> int:
        """Line ends before the first byte that was not taken yet."""
        return self._walked + self._ends_before

    def _line_at(self, place: LineLocation) -> int:
        """Return the number of the line at a place of the block."""
        return place.line + 1 + self._ends_before + bisect_left(self._joined.ends, place.offset)

    def _moved(self, rows: Rows, base: int) -> Rows:
        """Return rows of the block with their places in the log."""
        lines = rows.lines
        if self._ends_before or self._joined.ends:
            import numpy as np  # a log without metrics does not need it

            before = np.searchsorted(np.array(self._joined.ends, dtype=np.int64), rows.offsets)
            lines = lines + before + self._ends_before
        return replace(rows, offsets=rows.offsets + base, lines=lines)

    def _look(self, rest: UnparsedLines, block: bytearray, base: int, *, metrics: bool) -> None:
        if not len(rest.data):
            return
        found = self.machine.automaton.candidates(rest.data, anchors=metrics)
        if not found.signatures and not found.anchors:
            return
        data = bytes(rest.data)
        for number in found.signatures:
            self._hits(self.machine.signatures[number], data, LineLocator(data, rest.runs), base)
        if found.anchors:
            self._metrics(found.anchors, data, LineLocator(data, rest.runs), block, base)

    def _hits(self, pattern: Pattern, rest: bytes, places: LineLocator, base: int) -> None:
        if pattern.ends_only:
            begun = self.hits.has_first(pattern.name, base)
            ends = _ends_of(pattern, rest, begun=begun)
            hits = [self._hit(pattern, match, places, base) for match in ends]
            self.hits.add_ends(pattern.name, hits)
            return
        for match in _matches(pattern, rest, 0, len(rest)):
            self.hits.add(self._hit(pattern, match, places, base))

    def _hit(self, pattern: Pattern, match: _Match, places: LineLocator, base: int) -> Hit:
        place, head = places.of(match.start), match.head
        return Hit(
            signature=pattern.name,
            line=self._line_at(place),
            offset=base + place.offset,
            rank=self.origin.rank if head.rank is None else head.rank,
            named=head.rank is not None,
            time=head.time,
            text=text_around(match.text[head.length :], match.at - head.length),
        )

    def _metrics(
        self, anchors: Sequence[int], rest: bytes, places: LineLocator, block: bytearray, base: int
    ) -> None:
        learned, builder = self.machine.learned, self.builder
        if builder is None:
            return
        found: dict[int, tuple[LineLayout, list[tuple[LineValues, int, int]]]] = {}
        end = -1
        for anchor in anchors:
            if anchor <= end:
                continue
            start = rest.rfind(b"\n", 0, anchor) + 1
            end = rest.find(b"\n", anchor)
            place = places.of(start)
            last = place.offset + end - start if place.end < 0 else place.end
            if last - place.offset > LONGEST_METRIC_LINE:
                continue
            line = bytes(block[place.offset : last])
            read = learned.read(line)
            if read is None:
                if learned.rows_below(line) is not None:
                    self._heads.append((place.offset, last))
            else:
                layout, row = read
                entry = found.setdefault(id(layout), (layout, []))
                entry[1].append((row, base + place.offset, self._line_at(place)))
        for layout, rows in found.values():
            as_rows(layout, rows).add_to(builder, rank=self.origin.rank)

    def _read_tables(self, block: bytearray, end: int, base: int, lines_before: int) -> None:
        """Read the rows of the tables in what was walked over of a block; `lines_before`: line ends before it."""
        builder = self.builder
        if builder is None:
            return
        found: dict[int, tuple[LineLayout, list[tuple[LineValues, int, int]]]] = {}
        line, counted = lines_before, 0
        heads = sorted(self._heads)
        opened = [(start, OpenTable(bytes(block[begin:start]))) for begin, start in heads]
        if (
            self.table is not None
        ):  # what is before it was read already, and all tables that begin there
            start = min(end, max(0, self.table.at - base))
            first = bisect_left(heads, (start, start))
            heads, opened = heads[first:], [(start, self.table), *opened[first:]]
        stops = [begin for begin, _ in heads][len(heads) + 1 - len(opened) :]
        for (start, table), stop in zip(opened, [*stops, end], strict=True):
            layouts = self.machine.learned.rows_below(table.line)
            if layouts is None:
                continue
            rows, others = rows_below(table, layouts, block, start, stop)
            at = max(table.at, base + end)
            self.table = None if others is None else OpenTable(table.line, others, at)
            for row in rows:
                line += block.count(b"\n", counted, row.place)
                counted = row.place
                number = line + 1 + self._ends_before + bisect_left(self._joined.ends, row.place)
                entry = found.setdefault(id(row.layout), (row.layout, []))
                entry[1].append((row.values, base + row.place, number))
        for layout, each in found.values():
            as_rows(layout, each).add_to(builder, rank=self.origin.rank)


class LineLocation:
    """Where a line of the rest stands in its block."""

    __slots__ = ("end", "line", "offset")

    def __init__(self, offset: int, line: int, end: int) -> None:
        self.offset = offset
        self.line = line
        """Line ends before it."""
        self.end = end
        """Where it ends in the block; -1: it is as long there as in the rest."""


class LineLocator:
    """Finds where lines of the rest stand in their block; asked in order, as line ends are counted on the way."""

    def __init__(self, rest: bytes, runs: Sequence[int]) -> None:
        self.rest = rest
        self.runs = runs
        self.starts = runs[::4]
        self.run = -1
        self.position = 0
        self.line = 0

    def of(self, start: int) -> LineLocation:
        """Return where the line that starts at `start` in the rest stands."""
        number = bisect_right(self.starts, start) - 1
        begin, offset, line, end = self.runs[4 * number : 4 * number + 4]
        if number != self.run:
            self.run, self.position, self.line = number, begin, line
        self.line += self.rest.count(b"\n", self.position, start)
        self.position = start
        return LineLocation(offset + start - begin, self.line, end)


class _Match(NamedTuple):
    """A line of the rest that a pattern matches."""

    start: int
    """In the rest."""
    text: bytes
    head: LinePrefix
    at: int
    """Where in the line the match begins."""


def _matches(pattern: Pattern, rest: bytes, begin: int, stop: int) -> Iterator[_Match]:
    """Yield the lines between two line starts of the rest that a pattern matches."""
    part = rest[begin:stop]
    for start, end in _lines_with(pattern, part):
        text = part[start:end]
        if pattern.compiled.search(text) is None:
            continue
        head = prefix(text)
        found = pattern.compiled.search(text, head.length)
        if found is not None:
            yield _Match(begin + start, text, head, found.start())


def _ends_of(pattern: Pattern, rest: bytes, *, begun: bool) -> Sequence[_Match]:
    """Return the last lines that a pattern matches, and the first unless those have `begun` before."""
    starts = [0]
    while starts[-1] < len(rest):
        end = rest.find(b"\n", starts[-1] + LOOKED_AT_ONCE)
        starts.append(len(rest) if end < 0 else end + 1)
    pieces = list(pairwise(starts))
    first: list[_Match] = []
    done = 0
    while not begun and done < len(pieces) and len(first) < FIRST:
        first += _matches(pattern, rest, *pieces[done])
        done += 1
    last: list[_Match] = []
    while len(pieces) > done and len(last) < FIRST:
        last[:0] = _matches(pattern, rest, *pieces.pop())
    return [*first, *last]


def _lines_with(pattern: Pattern, rest: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of the lines that hold one of the texts that every match holds, in order."""
    if not pattern.literals:
        start = 0
        while start < len(rest):
            end = rest.find(b"\n", start)
            yield start, end
            start = end + 1
        return
    data = rest.lower() if pattern.any_case else rest
    lines = set()
    for text in pattern.literals:
        position = data.find(text)
        while position >= 0:
            end = rest.find(b"\n", position)
            lines.add((rest.rfind(b"\n", 0, position) + 1, end))
            position = data.find(text, end)
    yield from sorted(lines)

"""A log in stretches: where they begin, and how each is read."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from airflow_training.logs.engine.columns import OpenTable
from airflow_training.logs.engine.context_lines import AFTER_BYTES, MOST_LINES
from airflow_training.logs.engine.context_lines import first_time as time_in
from airflow_training.logs.engine.formats import Builder
from airflow_training.logs.engine.hits import HitList
from airflow_training.logs.engine.scanning import BLOCK_BYTES, Machine, StretchScan
from airflow_training.logs.engine.tails import TAIL_BYTES, Tail, tail_of
from airflow_training.logs.model import FileScan, Origin
from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.source import Source

SHARED_BYTES = 64 << 20
"""From this size on, a log is worth more than one process."""
_SHARES = (0.3, 0.1, 0.05, 0.03, 0.01, 0.01)
"""Of each process: large stretches first, as each is merged in the end; small ones last, so that nobody waits long."""
_LINE_START = re.compile(rb"\n(?! {9})")
"""Where no record goes on that was wrapped."""
_FIRST_BLOCKS = 65_536
"""Bytes of the first block: the lines in it teach the layouts of the rest."""


@dataclass
class StretchFindings:
    """What is in one stretch. It can be pickled."""

    hits: HitList
    builder: Builder | None
    size: int
    ends: int
    """Line ends."""
    first_time: float | None
    tail: Tail | None
    """Of a log that cannot be read back cheaply."""
    table: OpenTable | None = None
    """That may go on behind it."""


def borders(source: Source, start: int, size: int, processes: int) -> Sequence[tuple[int, int]]:
    """Return start and end of the stretches of a log from `start` to `size`; each but the first begins with a line."""
    if processes < 2 or size - start < SHARED_BYTES:
        return [(start, size)]
    shares = [share / sum(_SHARES) / processes for share in _SHARES for _ in range(processes)]
    starts = [start]
    share = 0.0
    for each in shares[:-1]:
        share += each
        begin = _line_start(source, start + int(share * (size - start)), size)
        if begin > starts[-1]:
            starts.append(begin)
    return [pair for pair in zip(starts, [*starts[1:], size], strict=True) if pair[0] < pair[1]]


def _line_start(source: Source, offset: int, size: int) -> int:
    """Return where the first line behind `offset` begins."""
    while offset < size:
        data = source.read(offset, BLOCK_BYTES).data
        if not data:
            break
        end = next((found.end() for found in _LINE_START.finditer(data)), -1)
        if end >= 0:
            return offset + end
        offset += len(data)
    return size


class RecentBytes:
    """The last bytes that were read of a log that cannot be read back cheaply."""

    def __init__(self, offset: int) -> None:
        self.data = bytearray()
        self.end = offset
        """Offset behind them."""

    def add(self, data: memoryview) -> None:
        """Take what was read next."""
        del self.data[: max(0, len(self.data) - 2 * BLOCK_BYTES)]
        self.data += data
        self.end += len(data)

    def read(self, start: int, end: int) -> bytes:
        """The part of a range of bytes that is still there."""
        first = self.end - len(self.data)
        return bytes(self.data[max(0, start - first) : max(0, end - first)])


def scan_stretch(
    machine: Machine,
    origin: Origin,
    source: Source,
    start: int,
    end: int | None,
    *,
    finished: bool = True,
    carry: Mapping[str, float] | None = None,
    table: OpenTable | None = None,
) -> StretchFindings:
    """Scan a stretch that begins with a line, or with a part of one.

    `end` is None for a log whose size is not known. If it is not `finished`, what comes behind the last complete part
    is left out. `table`: that is open, as what comes before says. Raises LogUnreadable.
    """
    stretch = StretchScan(origin, machine, offset=start, carry=carry, table=table)
    recent = None if isinstance(source, LocalFile) else RecentBytes(start)
    fill = _filler(source, end)
    block = bytearray(BLOCK_BYTES)
    view = memoryview(block)
    kept = 0
    room = _FIRST_BLOCKS
    first_time = None
    while True:
        count = fill(view[kept : kept + room], stretch.offset + kept)
        if stretch.offset == start and not kept:
            first_time = time_in(bytes(block[:count]).split(b"\n", MOST_LINES))
        if recent is not None:
            recent.add(view[kept : kept + count])
            stretch.hits.complete(recent.read, origin.rank, until=recent.end - AFTER_BYTES)
        size = kept + count
        taken = stretch.take(block, size, complete=finished and not count)
        kept = size - taken
        block[:kept] = block[taken:size]
        room = min(room * 2, BLOCK_BYTES - kept)
        if not count:
            break
    read = reader_of(source) if recent is None else recent.read
    stretch.hits.complete(read, origin.rank, until=stretch.offset)
    tail = None
    if recent is not None:
        ending = recent.read(stretch.offset - TAIL_BYTES, stretch.offset)
        tail = tail_of(ending, stretch.offset - len(ending))
    if stretch.builder is not None:
        stretch.builder.compact()
    return StretchFindings(
        *(stretch.hits, stretch.builder, stretch.offset - start, stretch.line, first_time, tail),
        table=stretch.table,
    )


def append(found: StretchFindings, later: StretchFindings) -> None:
    """Take over what is in the next stretch."""
    found.hits.append(later.hits, lines_before=found.ends)
    if found.builder is not None:
        found.builder.merge(later.builder, found.ends)
    found.size += later.size
    found.ends += later.ends
    found.tail = later.tail
    found.table = later.table


def as_scan(origin: Origin, found: StretchFindings, tail: Tail) -> FileScan:
    """Scan of a log from the findings in all of it."""
    lines = found.ends + tail.unended
    return FileScan(
        origin=origin,
        hits=found.hits.kept(),
        counts=found.hits.counts,
        series=() if found.builder is None else found.builder.series(origin),
        bytes=found.size,
        lines=lines,
        first_time=found.first_time,
        last_time=tail.last_time,
        tail=tail.lines,
        tail_line=max(1, lines - len(tail.lines) + 1),
        tail_offsets=tail.offsets,
    )


def tail_at(source: Source, end: int) -> Tail:
    """Return the last lines before the offset `end` of a log that can be read at any offset."""
    ending = reader_of(source)(max(0, end - TAIL_BYTES), end)
    return tail_of(ending, end - len(ending))


def _filler(source: Source, end: int | None) -> Callable[[memoryview, int], int]:
    """Return what puts the bytes at an offset into a buffer and says how many there were."""
    read_into = source.read_into if isinstance(source, LocalFile) else None

    def fill(buffer: memoryview, offset: int) -> int:
        room = len(buffer) if end is None else min(len(buffer), end - offset)
        if room <= 0:
            return 0
        if read_into is not None:
            return read_into(offset, buffer[:room])
        data = source.read(offset, room).data
        buffer[: len(data)] = data
        return len(data)

    return fill


def reader_of(source: Source) -> Callable[[int, int], bytes]:
    """A reader for bytes of a log that can be read at any offset."""

    def read(start: int, end: int) -> bytes:
        data = b""
        while start + len(data) < end:
            more = source.read(start + len(data), end - start - len(data)).data
            if not more:
                break
            data += more
        return data

    return read

"""Looking at a log that grows: what is new since the last time, from where that stopped."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from airflow_training.logs.engine.scanning import Machine
from airflow_training.logs.engine.stretches import as_scan, reader_of, scan_stretch
from airflow_training.logs.engine.tails import TAIL_BYTES, tail_of
from airflow_training.logs.model import FileScan, Origin
from airflow_training.logs.reading.source import Source

MARK_BYTES = 256


@dataclass(frozen=True)
class Position:
    """Where a look stopped. Plain values, so that it can be kept with what was found."""

    offset: int = 0
    line: int = 0
    """Line ends before it."""
    mark: str = ""
    """Digest of the bytes before it: another log, or a shorter one, has others there."""
    carry: Mapping[str, float] = field(default_factory=dict)
    """What the metrics of the rest depend on."""


START = Position()


def look(
    machine: Machine, origin: Origin, source: Source, position: Position, *, finished: bool = False
) -> tuple[FileScan, Position]:
    """Return what came since `position`, and where to look the next time.

    Lines and offsets are those of the whole log, `bytes` and `lines` count what is new. A last part without end is left
    for the next time unless the log is `finished`. Where the log is not the one that was looked at before (rotated,
    truncated), it is looked at from its beginning. Raises LogUnreadable.
    """
    if position.mark != mark_at(source, position.offset):
        position = START
    found = scan_stretch(
        machine,
        origin,
        source,
        position.offset,
        None,
        finished=finished,
        carry=position.carry,
    )
    end = position.offset + found.size
    carry = position.carry if found.builder is None else found.builder.carry()
    ending = reader_of(source)(max(position.offset, end - TAIL_BYTES), end)
    scan = as_scan(origin, found, tail_of(ending, end - len(ending)))
    return _moved(scan, position.line), Position(
        end, position.line + found.ends, mark_at(source, end), carry
    )


def mark_at(source: Source, offset: int) -> str:
    """Return a digest of the bytes before an offset; nothing at the beginning."""
    data = reader_of(source)(max(0, offset - MARK_BYTES), offset)
    return hashlib.sha256(data).hexdigest()[:32] if data else ""


def _moved(scan: FileScan, lines: int) -> FileScan:
    """Return a scan whose lines count from `lines`."""
    if not lines:
        return scan
    return replace(
        scan,
        hits=tuple(replace(hit, line=hit.line + lines) for hit in scan.hits),
        series=tuple(replace(each, lines=each.lines + lines) for each in scan.series),
        tail_line=scan.tail_line + lines,
    )

"""One pass over the bytes of a log finds failure signatures and metric values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from airflow_training.logs.engine.automaton import COMPILED_FROM_BYTES
from airflow_training.logs.engine.columns import OpenTable
from airflow_training.logs.engine.formats import Formats
from airflow_training.logs.engine.index import WORTH_BYTES, ScanIndex
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.scanning import Machine, borrowed_machine, machine_for
from airflow_training.logs.engine.stretches import (
    SHARED_BYTES,
    StretchFindings,
    append,
    as_scan,
    borders,
    scan_stretch,
    tail_at,
)
from airflow_training.logs.engine.work import share_out, usable_processes
from airflow_training.logs.model import FileScan, Origin
from airflow_training.logs.reading.local import LocalFile
from airflow_training.logs.reading.opening import open_log
from airflow_training.logs.reading.source import Source

__all__ = ["Formats", "Pattern", "machine_for", "scan", "scan_files", "scan_with"]


def scan(
    origin: Origin,
    source: str | Path | Source,
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
    remember: bool = False,
) -> FileScan:
    """Scan one log; `scan_files` says more."""
    (found,) = scan_files(
        [(origin, source)],
        signatures=signatures,
        formats=formats,
        processes=processes,
        remember=remember,
    )
    return found


def scan_files(
    files: Iterable[tuple[Origin, str | Path | Source]],
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
    remember: bool = False,
) -> tuple[FileScan, ...]:
    """Scan several logs: paths, URLs, or open sources, compressed or not.

    `processes` is how many may work, by default one for each processor. To `remember` is to keep what was found in
    large local logs in the user's cache folder, and to read only what is new the next time. What is found depends on
    neither, nor on which of numba, Hyperscan and RE2 are installed. Raises LogUnreadable.
    """
    with ExitStack() as stack:
        logs: list[tuple[Origin, Source]] = []
        for origin, source in files:
            if isinstance(source, (str, Path)):
                source = open_log(str(source))
                stack.callback(source.close)
            logs.append((origin, source))
        index = ScanIndex(signatures, formats) if remember else None
        return _scan_open(logs, signatures, formats, index, processes or usable_processes())


def scan_with(machine: Machine, origin: Origin, source: Source) -> FileScan:
    """Scan one log by a machine of the caller's. Raises LogUnreadable."""
    found = scan_stretch(machine, origin, source, 0, None)
    return as_scan(origin, found, found.tail or tail_at(source, found.size))


class _Item(NamedTuple):
    """A stretch of one of the logs."""

    log: int
    start: int
    end: int | None
    finished: bool
    table: OpenTable | None = None
    """That is open where it begins."""


def _with_small(total: int | None, source: Source) -> int | None:
    """Return `total` and the bytes of a log that does not tell its size; None where they are many.

    It is read for that: of small logs that costs less than compiling what large ones are worth.
    """
    size = 0
    while total is not None and total + size < COMPILED_FROM_BYTES:
        part = source.read(size, COMPILED_FROM_BYTES)
        size = part.next_offset
        if part.end or not part.data:
            return total + size
    return None


def _scan_open(
    logs: Sequence[tuple[Origin, Source]],
    signatures: Sequence[Pattern],
    formats: Formats | None,
    index: ScanIndex | None,
    processes: int,
) -> tuple[FileScan, ...]:
    whole: dict[int, StretchFindings] = {}
    items: list[_Item] = []
    total: int | None = 0
    for number, (origin, source) in enumerate(logs):
        if not isinstance(source, LocalFile):
            items.append(_Item(number, 0, None, finished=True))
            total = _with_small(total, source)
            continue
        size = source.size()
        own = index if size >= WORTH_BYTES else None
        if own is not None and (known := own.find(origin, source)) is not None:
            whole[number] = known
        start, table = (whole[number].size, whole[number].table) if number in whole else (0, None)
        total = None if total is None else total + size - start
        ends = borders(source, start, size, processes)
        items += [_Item(number, *each, finished=own is None) for each in ends]
        items[-len(ends)] = items[-len(ends)]._replace(table=table)
    with borrowed_machine(signatures, formats, size=total) as machine:

        def work(item: _Item) -> StretchFindings:
            origin, source = logs[item.log]
            return scan_stretch(
                *(machine, origin, source, item.start, item.end),
                finished=item.finished,
                table=item.table,
            )

        few = total is not None and total < SHARED_BYTES
        results = share_out(items, work, processes=1 if few else processes)
        for item, found in zip(items, results, strict=True):
            if item.log in whole:
                table = whole[item.log].table
                # only the stretch before tells whether a table goes on: then it is read again
                append(
                    whole[item.log],
                    found if table == item.table else work(item._replace(table=table)),
                )
            else:
                whole[item.log] = found
        if index is not None:
            for number in sorted({item.log for item in items if not item.finished}):
                origin, source = logs[number]
                if isinstance(source, LocalFile):
                    index.keep(origin, source, whole[number])
                # what has no end yet is read again the next time
                known = whole[number]
                last = _Item(number, known.size, None, finished=True, table=known.table)
                append(whole[number], work(last))
    return tuple(
        as_scan(origin, whole[number], whole[number].tail or tail_at(source, whole[number].size))
        for number, (origin, source) in enumerate(logs)
    )

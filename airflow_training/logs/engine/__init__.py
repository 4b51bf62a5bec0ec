"""One pass over the bytes of a log finds failure signatures and metric values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from airflow_training.logs.engine.formats import Formats
from airflow_training.logs.engine.looking import START, Position, look
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.scanning import machine_for
from airflow_training.logs.engine.stretches import (
    Found,
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

__all__ = ["START", "Formats", "Pattern", "Position", "look", "machine_for", "scan", "scan_files"]

MANY_BYTES = 64 << 20
"""From so many bytes on, other processes help."""


def scan(
    origin: Origin,
    source: str | Path | Source,
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
) -> FileScan:
    """Return what is in one log; `scan_files` says more."""
    (found,) = scan_files(
        [(origin, source)], signatures=signatures, formats=formats, processes=processes
    )
    return found


def scan_files(
    files: Iterable[tuple[Origin, str | Path | Source]],
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
) -> tuple[FileScan, ...]:
    """Return what is in each of several logs: paths, URLs, or open sources, compressed or not.

    `processes` is how many may work, by default one for each processor. What is found does not depend on it, nor on
    which of numba, Hyperscan and RE2 are installed. Raises LogUnreadable.
    """
    with ExitStack() as stack:
        logs: list[tuple[Origin, Source]] = []
        for origin, source in files:
            if isinstance(source, (str, Path)):
                source = open_log(str(source))
                stack.callback(source.close)
            logs.append((origin, source))
        return _scan_open(logs, signatures, formats, processes or usable_processes())


def _scan_open(
    logs: Sequence[tuple[Origin, Source]],
    signatures: Sequence[Pattern],
    formats: Formats | None,
    processes: int,
) -> tuple[FileScan, ...]:
    sizes = [source.size() if isinstance(source, LocalFile) else None for _, source in logs]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    if total is not None and total < MANY_BYTES:
        processes = 1
    machine = machine_for(signatures, formats, size=total)
    items: list[tuple[int, int, int | None]] = []
    for number, ((_, source), size) in enumerate(zip(logs, sizes, strict=True)):
        if size is None:
            items.append((number, 0, None))
        else:
            items += [(number, *border) for border in borders(source, size, processes)]

    def work(item: tuple[int, int, int | None]) -> Found:
        number, start, end = item
        origin, source = logs[number]
        return scan_stretch(machine, origin, source, start, end)

    whole: dict[int, Found] = {}
    for (number, _, _), found in zip(
        items, share_out(items, work, processes=processes), strict=True
    ):
        if number in whole:
            append(whole[number], found)
        else:
            whole[number] = found
    return tuple(
        as_scan(origin, found, found.tail or tail_at(source, found.size))
        for (origin, source), found in zip(logs, whole.values(), strict=True)
    )

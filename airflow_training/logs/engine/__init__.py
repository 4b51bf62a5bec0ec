"""One pass over the bytes of a log finds failure signatures and metric values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from airflow_training.logs.engine.cleaning import clean, parts, shown
from airflow_training.logs.engine.formats import Formats, ParsedLine, Slot
from airflow_training.logs.engine.hits import LONGEST_CONTEXT, Hits, text_around, with_context
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.prefixes import prefix
from airflow_training.logs.model import FileScan, Hit, Origin

__all__ = ["Formats", "Pattern", "scan", "scan_files"]

LONGEST_METRIC_LINE = 8192


def scan(
    origin: Origin,
    source: str | Path,
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
) -> FileScan:
    """Return what is in one log; raises `OSError` if it cannot be read."""
    data = Path(source).read_bytes()
    hits = Hits(origin)
    builder = None if formats is None else formats.builder()
    anchor = (
        None
        if formats is None
        else re.compile(b"|".join(text.encode() for text in formats.anchors()))
    )
    for start, end, lines in parts(data):
        raw = data[start:end]
        text = clean(raw)
        head = prefix(text)
        rank = origin.rank if head.rank is None else head.rank
        for signature in signatures:
            found = signature.compiled.search(text, head.length)
            if found is not None:
                hit = Hit(
                    signature=signature.name,
                    line=lines + 1,
                    offset=start,
                    rank=rank,
                    time=head.time,
                    text=text_around(text[head.length :], found.start() - head.length),
                )
                hits.add(with_context(hit, origin.rank, lambda a, b: data[a:b]))
        if anchor is None or formats is None or builder is None or len(raw) > LONGEST_METRIC_LINE:
            continue
        if anchor.search(text) is None or (parsed := formats.parse_line(raw)) is None:
            continue
        values = [value(slot, raw[slot.start : slot.end]) for slot in parsed.slots if slot.metric]
        said = next(
            (
                value(slot, raw[slot.start : slot.end])
                for slot in parsed.slots
                if slot.kind == "rank"
            ),
            -1 if rank is None else rank,
        )
        builder.add(
            parsed,
            np.array([values]),
            np.array([start]),
            np.array([lines + 1]),
            np.array([np.nan if head.time is None else head.time]),
            np.array([int(said)]),
        )
    tail = data.split(b"\n")
    if tail and not tail[-1]:
        tail.pop()
    offsets = np.cumsum([0] + [len(line) + 1 for line in tail])[:-1]
    times = [time for line in tail if (time := prefix(clean(line)).time) is not None]
    return FileScan(
        origin=origin,
        hits=hits.kept(),
        counts=hits.counts,
        series=() if builder is None else builder.series(origin),
        bytes=len(data),
        lines=len(tail),
        first_time=times[0] if times else None,
        last_time=times[-1] if times else None,
        tail=tuple(shown_line(line) for line in tail[-200:]),
        tail_line=max(1, len(tail) - 199),
        tail_offsets=tuple(int(offset) for offset in offsets[-200:]),
    )


def scan_files(
    files: Iterable[tuple[Origin, str | Path]],
    *,
    signatures: Sequence[Pattern],
    formats: Formats | None = None,
    processes: int | None = None,
) -> tuple[FileScan, ...]:
    """Return what is in each of several logs."""
    return tuple(
        scan(origin, source, signatures=signatures, formats=formats, processes=processes)
        for origin, source in files
    )


def shown_line(line: bytes) -> str:
    """Return the last part of a line without prefix, as a terminal shows it."""
    found = list(parts(line))
    if not found:
        return ""
    text = clean(line[found[-1][0] : found[-1][1]])
    return shown(text[prefix(text).length :], LONGEST_CONTEXT)


def value(slot: Slot, text: bytes) -> float:
    """Return the value of a slot, as `logs/metrics/lines.py` says."""
    if slot.kind == "clock":
        if b"?" in text:
            return float("nan")
        days, _, rest = text.rpartition(b"day")
        seconds = 0.0
        for piece in rest.lstrip(b"s, ").split(b":"):
            seconds = seconds * 60 + float(piece)
        return (seconds + 86400 * float(days or 0)) * slot.scale
    number = float(text.replace(b",", b""))
    if slot.kind == "divided":
        return number / slot.scale
    if slot.kind == "inverse":
        return slot.scale / number if number else float("inf")
    return number * slot.scale

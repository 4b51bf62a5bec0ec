"""What the engine must agree with: every part of every line by itself, with `re` and `parse_line`, no short cuts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from airflow_training.logs.engine import Formats, Pattern
from airflow_training.logs.engine.automaton import anchor_literals
from airflow_training.logs.engine.hits import HitList, text_around
from airflow_training.logs.engine.layouts import LayoutPiece, value
from airflow_training.logs.engine.wrapped import join_wrapped
from airflow_training.logs.lines.cleaning import clean, kept_bytes, parts
from airflow_training.logs.lines.prefixes import prefix
from airflow_training.logs.model import FileScan, Hit, Origin


def scan(
    data: bytes, *, signatures: Sequence[Pattern], formats: Formats, origin: Origin
) -> FileScan:
    hits = HitList()
    builder = formats.builder()
    literals = [text.lower() for text in anchor_literals(tuple(formats.anchors()))]
    whole = bytearray(data)
    ends = join_wrapped(whole, len(data), complete=True).ends
    for start, end, before in parts(bytes(whole)):
        raw = bytes(whole[start:end])
        lines = before + sum(each < start for each in ends)
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
                if signature.ends_only:
                    hits.add_ends(signature.name, [hit])
                else:
                    hits.add(hit)
        if len(raw) > 8192 or not any(literal in text.lower() for literal in literals):
            continue
        parsed = formats.parse_line(raw)
        if parsed is None:
            continue
        texts = [(slot, raw[slot.start : slot.end]) for slot in parsed.slots]
        values = [
            value(LayoutPiece(slot.kind, slot.scale), text) for slot, text in texts if slot.metric
        ]
        said = [int(text) for slot, text in texts if slot.kind == "rank"]
        # what a format reads as a value is neither rank nor time, though it may look like one
        kept = kept_bytes(raw)

        def is_value(
            span: tuple[int, int] | None, kept: list[int] = kept, parsed: Any = parsed
        ) -> bool:
            if span is None:
                return False
            first, last = kept[span[0]], kept[span[1] - 1] + 1
            return any(
                slot.metric and slot.start < last and first < slot.end for slot in parsed.slots
            )

        if is_value(head.rank_span):
            rank = origin.rank
        time = np.nan if head.time is None or is_value(head.time_span) else head.time
        builder.add(
            parsed,
            np.array([values]),
            np.array([start]),
            np.array([lines + 1]),
            np.array([time]),
            np.array([said[-1] if said else -1 if rank is None else rank]),
        )
    hits.complete(lambda a, b: data[a:b], origin.rank, until=len(data) + 1)
    return FileScan(
        origin=origin,
        hits=hits.kept(),
        counts=hits.counts,
        series=builder.series(origin),
        bytes=len(data),
        lines=data.count(b"\n") + (bool(data) and not data.endswith(b"\n")),
    )

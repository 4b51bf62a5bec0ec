"""Where in a long log a loss became no number: looked for by halves, so that little of it is read."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from airflow_training.documents.resolved_blocks import ResolvedLogPattern
from airflow_training.runtimes.port import Cursor, InstanceRef, Runtime

if TYPE_CHECKING:
    from airflow_training.logs.model import Finding

__all__ = ["FirstLost", "find_first_lost"]

_WINDOW_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstLost:
    evidence: str
    offset: int


async def find_first_lost(
    runtime: Runtime,
    ref: InstanceRef,
    *,
    metric: str,
    before: int,
    patterns: Sequence[ResolvedLogPattern],
) -> FirstLost | None:
    """Return where a metric became no number and stayed so; None where that is not found.

    `before`: an offset at which it was none. The log's cursors are offsets.
    """

    async def poll(offset: int, size: int) -> _Window:
        chunk = await runtime.read_log(ref, Cursor(offset=offset), limit=size)
        return await asyncio.to_thread(_poll, chunk.data, offset, metric, patterns)

    low, high = 0, before
    while high - low > _WINDOW_BYTES:
        middle = (low + high) // 2
        window = await poll(middle, _WINDOW_BYTES)
        if window.first is not None and window.begins_well:
            return window.first
        if window.begins_well:
            low = middle
        else:
            high = middle
    window = await poll(low, high - low + _WINDOW_BYTES)
    return window.first if window.begins_well or not low else None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    begins_well: bool
    """Its first value is a number."""
    first: FirstLost | None
    """From where on it has none to its end."""


def _poll(data: bytes, offset: int, metric: str, patterns: Sequence[ResolvedLogPattern]) -> _Window:
    from airflow_training.admission.log_patterns import formats_of
    from airflow_training.logs.engine import machine_for, scan_with
    from airflow_training.logs.health.losses import not_finite
    from airflow_training.logs.health.ranks import by_rank
    from airflow_training.logs.metrics import formats
    from airflow_training.logs.model import Origin
    from airflow_training.logs.reading.memory import BytesLog

    cut = data.find(b"\n") + 1 if offset else 0
    machine = machine_for((), formats(formats_of(patterns)), size=len(data))
    found = scan_with(machine, Origin(file="log"), BytesLog("log", data[cut:]))
    series = [each for each in found.series if each.metric == metric]
    if not series:
        return _Window(begins_well=False, first=None)
    lost = [each for each in not_finite(by_rank(series)) if each.message.endswith("from here on")]
    begins_well = math.isfinite(series[0].values[0])
    first = _told(lost[0], data[cut:], offset + cut) if lost else None
    return _Window(begins_well=begins_well, first=first)


def _told(finding: Finding, data: bytes, offset: int) -> FirstLost:
    place = finding.offset or 0
    line = data[place : data.find(b"\n", place)].decode(errors="replace").strip()
    return FirstLost(evidence=f"{finding.message_at_step}: {line}", offset=offset + place)

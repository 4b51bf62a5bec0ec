"""The values in a piece of a log, with a little of what stood before it: a line may lean on earlier ones. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from airflow_training.logs.engine.columns import OpenTable
from airflow_training.logs.engine.formats import Formats
from airflow_training.logs.engine.scanning import machine_for
from airflow_training.logs.engine.stretches import scan_stretch
from airflow_training.logs.live.held_times import BareTime, HeldTimes
from airflow_training.logs.metrics.names import CLOCK
from airflow_training.logs.metrics.thinning import representative_rows
from airflow_training.logs.model import Origin, Series
from airflow_training.logs.reading.memory import BytesLog

__all__ = ["LogPiece", "ReportedMetric", "scan_piece"]

_MOST_VALUES = 500
"""Of one metric of one rank in one piece; of more, the extremes stay."""
_TICK = 1e-6
"""Seconds between two values of one time: the time is part of their key."""
_PROGRESS = {
    "step": "step",
    "total_steps": "total_steps",
    "epoch": "epoch",
    "consumed_samples": "samples",
}
_BARE_TIME = "\0time"
"""No name of a metric."""
_WHOLE = frozenset({"step", "total_steps", "samples"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedMetric:
    """A value of a metric. `at`: UTC seconds since 1970."""

    name: str
    at: float
    step: int | None
    value: float
    rank: int | None
    """As its line says; None where it does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPiece:
    """What a piece says."""

    done: int
    """Offset behind the last line that is complete; a carriage return of a bar ends one, too."""
    carry: Mapping[str, float] = field(default_factory=dict)
    """What the next piece depends on,"""
    held: Mapping[str, Any] = field(default_factory=dict)
    """and the times that wait to be understood, and the table that may go on."""
    values: tuple[ReportedMetric, ...] = ()
    progress: Mapping[str, Any] = field(default_factory=dict)
    """`step`, `total_steps`, `epoch`, `samples`, `time`: the newest of each; empty: none."""
    last_at: float = 0.0


def scan_piece(
    text: bytes,
    *,
    offset: int,
    done: int,
    complete: bool,
    carry: Mapping[str, float],
    last_at: float,
    begun: float,
    now: float,
    formats: Formats,
    origin: Origin,
    held: Mapping[str, Any] | None = None,
    over: bool = False,
) -> LogPiece:
    """Return the values of all lines from `done` on that have an end; `complete`: of the last one too; `over`: nothing follows.

    `offset` is that of `text`, at or before `done`: what is before `done` was told already and
    only helps to understand the rest, as `carry` and `held` of the piece before do. Values get increasing
    times after `last_at`: those of their lines, else between when the process has `begun` and `now`. Of several ranks in one log, the
    lowest tells the progress of the instance.
    """
    held = held or {}
    machine = machine_for((), formats, size=len(text))
    found = scan_stretch(
        machine,
        origin,
        BytesLog("", text),
        0,
        None,
        finished=complete,
        carry=carry,
        table=_open_table(held, at=done - offset),
    )
    end = offset + found.size
    times = HeldTimes(held)
    if end <= done or found.builder is None:
        values = _understood((), times, over=over)
        state = {**times.state, **_told(_open_table(held, at=0))}
        return LogPiece(done=done, carry=carry, held=state, values=values, last_at=last_at)
    series = found.builder.series(origin, judged=False)
    rows = sorted(_rows(series, since=done - offset))
    values, last_at = _timed(
        rows,
        done=done - offset,
        end=end - offset,
        last_at=last_at,
        earliest=min(max(last_at, begun), now),
        now=now,
    )
    progress = _progress(_lowest_rank(series), since=done - offset)
    if progress:
        progress["time"] = values[-1].at if values else now
    values = _understood(values, times, over=over)
    return LogPiece(
        done=end,
        carry=found.builder.carry(),
        held={**times.state, **_told(found.table)},
        values=values,
        progress=progress,
        last_at=last_at,
    )


def _open_table(held: Mapping[str, Any], *, at: int) -> OpenTable | None:
    """Return the table that the piece before ended in."""
    found = held.get("table")
    return (
        None if found is None else OpenTable(found["line"].encode("latin-1"), found["others"], at)
    )


def _told(table: OpenTable | None) -> Mapping[str, Any]:
    """Return a table as JSON may hold it."""
    if table is None:
        return {}
    return {"table": {"line": table.line.decode("latin-1"), "others": table.others}}


def _understood(
    values: Sequence[ReportedMetric], times: HeldTimes, *, over: bool
) -> tuple[ReportedMetric, ...]:
    """Return the values of which it is known what they are."""
    bare = [
        BareTime(rank=each.rank, at=each.at, step=each.step, value=each.value)
        for each in values
        if each.name == _BARE_TIME
    ]
    told = [
        ReportedMetric(name=name, at=each.at, step=each.step, value=each.value, rank=each.rank)
        for name, each in times.take(bare, over=over)
    ]
    return (*(each for each in values if each.name != _BARE_TIME), *told)


def _lowest_rank(series: Sequence[Series]) -> list[Series]:
    """Return one series of each metric."""
    found: dict[str, Series] = {}
    for each in sorted(series, key=lambda one: -1 if one.rank is None else one.rank):
        found.setdefault(each.metric, each)
    return list(found.values())


class _Row(NamedTuple):
    offset: int
    metric: str
    rank: int
    """-1: none, so that rows have an order."""
    time: float
    step: float
    value: float


def _rows(series: Sequence[Series], *, since: int) -> Iterator[_Row]:
    """Yield what is new."""
    for each in series:
        if each.metric in _PROGRESS:
            continue
        new = np.flatnonzero(each.offsets >= since)
        if len(new) > _MOST_VALUES:
            buckets = np.arange(len(new)) * (_MOST_VALUES // 4) // len(new)
            new = new[representative_rows([each.values[new]], buckets)]
        for at in new:
            yield _Row(
                offset=int(each.offsets[at]),
                metric=_BARE_TIME if each.scope == CLOCK else each.metric,
                rank=-1 if each.rank is None else each.rank,
                time=float(each.times[at]),
                step=float(each.steps[at]),
                value=float(each.values[at]),
            )


def _timed(
    rows: Sequence[_Row], *, done: int, end: int, last_at: float, earliest: float, now: float
) -> tuple[tuple[ReportedMetric, ...], float]:
    """Return the rows with times that grow from line to line."""
    found = []
    line, at = -1, last_at
    for row in rows:
        if row.offset != line:
            # a line without a time was written at some moment since the last look
            share = (row.offset - done + 1) / (end - done)
            guess = earliest + share * (now - earliest)
            line, at = row.offset, max(at + _TICK, guess if math.isnan(row.time) else row.time)
        step = int(row.step) if math.isfinite(row.step) else None
        rank = None if row.rank < 0 else row.rank
        found.append(ReportedMetric(name=row.metric, at=at, step=step, value=row.value, rank=rank))
    return tuple(found), at


def _progress(series: Sequence[Series], *, since: int) -> dict[str, Any]:
    """Return the newest counters; empty where no new line tells a step or an epoch."""
    found: dict[str, Any] = {}
    newest = -1
    for each in series:
        name = _PROGRESS.get(each.metric)
        if name is not None and len(each.values) and math.isfinite(each.values[-1]):
            number = float(each.values[-1])
            found[name] = int(number) if name in _WHOLE else number
            newest = max(newest, int(each.offsets[-1]))
        told = np.isfinite(each.steps)
        if name is None and told.any() and each.offsets[told][-1] >= since:
            newest = max(newest, int(each.offsets[told][-1]))
            found.setdefault("step", int(each.steps[told][-1]))
    return found if newest >= since else {}

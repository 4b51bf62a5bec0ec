"""From rows of values to series: steps carried over, memory bounded, extremes kept. Pure.

A series is exact up to `EXACT` points. A longer one is kept in buckets of equally many rows, of which the first, the
last, and for each metric the least and the greatest row stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from airflow_training.logs.metrics.any_program import LISTED
from airflow_training.logs.metrics.bars import BarRun, Bars
from airflow_training.logs.metrics.clocks import CLOCK_NAME, since_start
from airflow_training.logs.metrics.names import CLOCK, COUNTERS
from airflow_training.logs.metrics.slots import ParsedLine
from airflow_training.logs.metrics.thinning import representative_rows
from airflow_training.logs.model import Origin, Series

if TYPE_CHECKING:
    from airflow_training.logs.model import Floats, Integers

__all__ = ["EXACT", "SeriesBuilder"]

EXACT = 25_000
"""Points of a series that are all kept."""
_KEPT = 8_000
"""Rows that stay of more than `EXACT`."""
_BATCH = 8_000
"""New rows of a series that is not exact any more that are thinned at once: few enough to stay near the processor."""
_FOLD = 8
"""How many times fewer rows a first thinning leaves."""
_HELD = 1_000_000
"""Numbers that one builder holds, whatever the number of ranks: some 8 MB."""
_BESIDE = 3
"""Lines between two values of one list."""
_REPEATS = 2
"""Lines of an unknown layout that make a series."""


class _Key(NamedTuple):
    """Rows of equal meaning and rank stand in one table."""

    columns: tuple[tuple[str, str], ...]
    """(metric, scope)."""
    rank: int
    certain: bool
    bar: bool
    listed: bool = False


@dataclass
class _Rows:
    """Rows in the order of the log; all arrays are of one length."""

    values: Any
    """[rows, columns]."""
    steps: Floats
    times: Floats
    offsets: Integers
    lines: Integers
    ordinals: Integers
    """Which row of its table it is, counted from the first of the log."""

    @property
    def size(self) -> int:
        return int(self.offsets.size)

    def pick(self, which: Any) -> _Rows:
        return _Rows(*(getattr(self, name)[which] for name in _FIELDS))

    def copied(self) -> _Rows:
        """Return the same rows without a hold on larger arrays."""
        return _Rows(*(getattr(self, name).copy() for name in _FIELDS))

    @staticmethod
    def joined(parts: Sequence[_Rows]) -> _Rows:
        """Return the rows of several, in the order of the log."""
        if len(parts) == 1:
            return parts[0]
        rows = _Rows(*(np.concatenate([getattr(each, name) for each in parts]) for name in _FIELDS))
        if bool((rows.offsets[1:] >= rows.offsets[:-1]).all()):
            return rows
        return rows.pick(np.argsort(rows.offsets, kind="stable"))


_FIELDS = ("values", "steps", "times", "offsets", "lines", "ordinals")


@dataclass
class _Table:
    """The rows of one key: thinned ones, then settled ones, then loose ones."""

    key: _Key
    total: int = 0
    held: int = 0
    """Rows in memory."""
    width: int = 0
    """Rows per bucket when too many were kept the last time."""
    thinned: list[_Rows] = field(default_factory=list)
    settled: _Rows | None = None
    """They have their steps, and no redraw of an inner bar is among them."""
    loose: list[_Rows] = field(default_factory=list)

    def column(self, name: str) -> int | None:
        """Return the position of a metric in the key; None where rows do not have it."""
        return next((i for i, (each, _) in enumerate(self.key.columns) if each == name), None)

    @property
    def width_of_row(self) -> int:
        """Return how many numbers a row has."""
        return len(self.key.columns) + 5

    def append(self, values: Any, offsets: Integers, lines: Integers, times: Floats) -> None:
        """Take rows."""
        step = self.column("step")
        steps = np.full(offsets.size, np.nan) if step is None else values[:, step]
        ordinals = np.arange(self.total, self.total + offsets.size)
        self.loose.append(_Rows(values, steps, times, offsets, lines, ordinals))
        self.total += offsets.size
        self.held += offsets.size

    def fresh(self) -> _Rows | None:
        """Return the loose rows as one part of the table, or None if there are none."""
        if not self.loose:
            return None
        self.loose = [_Rows.joined(self.loose)]
        return self.loose[0]

    def settle(self) -> None:
        """Take the loose rows as settled."""
        if self.loose:
            parts = [] if self.settled is None else [self.settled]
            self.settled = _Rows.joined([*parts, *self.loose])
            self.loose = []

    @property
    def new(self) -> int:
        """Return how many rows are not thinned yet."""
        return self.held - sum(rows.size for rows in self.thinned)

    @property
    def is_settled(self) -> bool:
        """Return whether there are rows that are settled."""
        return bool(self.thinned) or self.settled is not None

    def rows(self) -> _Rows | None:
        """Return all rows, or None if there are none."""
        parts = self._parts()
        return _Rows.joined(parts) if parts else None

    def _parts(self) -> list[_Rows]:
        settled = [] if self.settled is None else [self.settled]
        return [*self.thinned, *settled, *self.loose]

    def thin(self, target: int) -> None:
        """Keep at most about `target` of the settled rows."""
        measured = [i for i, (name, _) in enumerate(self.key.columns) if name not in COUNTERS]
        per_bucket = 2 * len(measured) + 2
        width = _FOLD * per_bucket
        if self.settled is not None:
            whole = self.settled.size // width * width
            rows = self.settled.pick(slice(0, whole))
            self.thinned.append(_telling(rows, measured, np.arange(whole) // width))
            self.thinned.append(self.settled.pick(slice(whole, None)).copied())
            self.settled = None
        self.held = sum(rows.size for rows in self.thinned)
        if self.held > target:
            kept = _Rows.joined(self.thinned)
            needed = -(-self.total * per_bucket // target)
            if self.width < needed:
                self.width = 2 * needed
            self.thinned = [_telling(kept, measured, kept.ordinals // self.width)]
            self.held = self.thinned[0].size

    def thin_all(self) -> None:
        """Take all rows as thinned: buckets of two tables that were joined do not fit together."""
        self.settle()
        self.thinned = [_Rows.joined(self._parts())]
        self.settled = None


def _telling(rows: _Rows, measured: Sequence[int], buckets: Integers) -> _Rows:
    """Return the rows that tell most of each bucket."""
    columns = [np.ascontiguousarray(rows.values[:, index]) for index in measured]
    return rows.pick(representative_rows(columns, buckets))


_Part = tuple[_Rows, int, int]
"""Rows, which of their columns, and how many there were."""


class SeriesBuilder:
    """Takes rows of values, of one piece of a log, and gives series. Pickles."""

    def __init__(self, *, exact: int = EXACT, carry: Mapping[str, float] | None = None) -> None:
        """Begin with what the builder of the log before had to `carry`."""
        self._exact = exact
        self._most_kept = exact * _KEPT // EXACT
        self._tables: dict[_Key, _Table] = {}
        self._bars: dict[int, Bars] = {}
        self._last = {int(rank): step for rank, step in (carry or {}).items()}
        """The newest step of each rank."""
        self._high = -1

    def add(
        self,
        layout: ParsedLine,
        values: Any,
        offsets: Integers,
        lines: Integers,
        times: Floats,
        ranks: Integers,
    ) -> None:
        """Take rows of one layout, in the order of the log.

        `values` is [rows, slots with a metric]; a time that is not known is NaN, such a rank -1. Rows of several
        layouts may interleave within a block of the log, never across blocks.
        """
        if offsets.size == 0:
            return
        if offsets[0] > self._high:
            self._bound()
        self._high = max(self._high, int(offsets[-1]))
        columns = tuple((slot.metric, slot.scope) for slot in layout.slots if slot.metric)
        bar, listed = layout.format == "tqdm/bar", layout.format == LISTED
        first = int(ranks[0])
        if (ranks == first).all():
            self._table(_Key(columns, first, layout.certain, bar, listed)).append(
                values, offsets, lines, times
            )
            return
        order = np.argsort(ranks, kind="stable")
        values, offsets, lines, times = values[order], offsets[order], lines[order], times[order]
        ranks = ranks[order]
        starts = np.flatnonzero(np.r_[True, ranks[1:] != ranks[:-1]])
        for start, end in pairwise([*starts.tolist(), ranks.size]):
            rows = slice(start, end)
            table = self._table(_Key(columns, int(ranks[start]), layout.certain, bar, listed))
            table.append(values[rows], offsets[rows], lines[rows], times[rows])

    def carry(self) -> dict[str, float]:
        """Return the newest step of each rank (-1: none), for the builder of what is written next."""
        self._settle()
        return {str(rank): step for rank, step in self._last.items()}

    def merge(self, later: SeriesBuilder, lines_before: int = 0) -> None:
        """Take over the rows of the builder of the next piece; its lines count from `lines_before`."""
        settled = bool(later._last) or any(table.is_settled for table in later._tables.values())
        if settled:
            later._settle()
            self._settle()
        for key, theirs in later._tables.items():
            ours = self._table(key)
            for rows in theirs._parts():
                rows.lines = rows.lines + lines_before
                rows.ordinals = rows.ordinals + ours.total
                if settled and theirs.column("step") is None and key.rank in self._last:
                    rows.steps = np.where(np.isnan(rows.steps), self._last[key.rank], rows.steps)
            ours.total += theirs.total
            ours.held += theirs.held
            if not settled:
                ours.loose += theirs.loose
                continue
            ours.loose = theirs._parts()
            ours.width = max(ours.width, theirs.width)
            ours.settle()
            if ours.thinned or theirs.thinned:
                ours.thin_all()
        self._last |= later._last
        self._bars |= later._bars
        self._high = max(self._high, later._high)
        self.compact()

    def compact(self) -> None:
        """Keep of every series that is too long to be exact no more than will stay of it."""
        long = [table for table in self._tables.values() if table.total > self._exact]
        if long:
            self._settle()
        for table in long:
            table.thin(self._most_kept)
        self._bound()

    def series(self, origin: Origin, *, judged: bool = True) -> tuple[Series, ...]:
        """Return a series per metric, scope and rank, in the order in which the log begins them.

        Not `judged`: bare times keep the scope CLOCK, as more of the log may tell whether they are those of steps.
        """
        self._settle()
        found: dict[tuple[str, str, int], list[_Part]] = {}
        for table, rows in _that_count(self._tables.values()):
            for index, (metric, scope) in enumerate(table.key.columns):
                found.setdefault((metric, scope, table.key.rank), []).append(
                    (rows, index, table.total)
                )
        series = [
            _series(origin, name, parts)
            for name, parts in (_named(found) if judged else found).items()
            if any(p[0].size for p in parts)
        ]
        return tuple(sorted(series, key=lambda each: (int(each.offsets[0]), each.metric)))

    def _table(self, key: _Key) -> _Table:
        table = self._tables.get(key)
        if table is None:
            table = self._tables[key] = _Table(key)
        return table

    def _bound(self) -> None:
        """Thin what has become too long."""
        tables = self._tables.values()
        batch = min(_BATCH, self._exact)
        too_long = [
            table for table in tables if table.new > (batch if table.thinned else self._exact)
        ]
        too_many = sum(table.held * table.width_of_row for table in tables) > _HELD
        if not too_long and not too_many:
            return
        self._settle()
        for table in too_long:
            table.thin(self._most_kept)
        if too_many:
            # to half of it, so that this is rare
            fair = _HELD // 2 // len(tables)
            for table in tables:
                if table.held * table.width_of_row > fair:
                    table.thin(max(1, fair // table.width_of_row))

    def _settle(self) -> None:
        """Drop bars inside bars, and give rows without a step that of the line before."""
        by_rank: dict[int, list[_Table]] = {}
        for table in self._tables.values():
            by_rank.setdefault(table.key.rank, []).append(table)
        for rank, tables in by_rank.items():
            bars = [
                table
                for table in tables
                if table.key.bar and table.column("total_steps") is not None
            ]
            self._drop_inner(rank, bars)
            self._carry(rank, tables)
            for table in tables:
                table.settle()

    def _drop_inner(self, rank: int, tables: Sequence[_Table]) -> None:
        fresh = [(table, rows) for table in tables if (rows := table.fresh()) is not None]
        if not fresh:
            return
        offsets = np.concatenate([rows.offsets for _, rows in fresh])
        steps = np.concatenate([rows.steps for _, rows in fresh])
        totals = np.concatenate(
            [rows.values[:, table.column("total_steps")] for table, rows in fresh]
        )
        order = np.argsort(offsets, kind="stable")
        steps, totals = steps[order], totals[order]
        starts = np.flatnonzero(np.r_[True, totals[1:] != totals[:-1]])
        ends = np.r_[starts[1:], totals.size]
        runs = [
            BarRun(float(totals[a]), float(steps[a]), float(steps[b - 1]))
            for a, b in zip(starts, ends, strict=True)
        ]
        inside = self._bars.setdefault(rank, Bars()).inside(runs)
        if not any(inside):
            return
        keep = np.empty(offsets.size, bool)
        keep[order] = np.repeat(~np.array(inside), ends - starts)
        at = 0
        for table, rows in fresh:
            kept = rows.pick(keep[at : at + rows.size])
            at += rows.size
            table.loose = [kept]
            table.held -= rows.size - kept.size
            table.total -= rows.size - kept.size

    def _carry(self, rank: int, tables: Sequence[_Table]) -> None:
        fresh = [(table, rows) for table in tables if (rows := table.fresh()) is not None]
        sources = [rows for table, rows in fresh if table.column("step") is not None and rows.size]
        last = self._last.get(rank, np.nan)
        offsets = np.concatenate([np.array([-1]), *(rows.offsets for rows in sources)])
        steps = np.concatenate([np.array([last]), *(rows.steps for rows in sources)])
        order = np.argsort(offsets, kind="stable")
        offsets, steps = offsets[order], steps[order]
        for table, rows in fresh:
            if table.column("step") is None:
                rows.steps = steps[np.searchsorted(offsets, rows.offsets, side="right") - 1]
        if sources:
            self._last[rank] = float(steps[-1])


def _named(
    found: Mapping[tuple[str, str, int], list[_Part]],
) -> Mapping[tuple[str, str, int], list[_Part]]:
    """Return the parts of series by what they are: a bare `time` is that of a step unless it only grows."""
    named: dict[tuple[str, str, int], list[_Part]] = {}
    for (metric, scope, rank), parts in found.items():
        if scope == CLOCK:
            metric, scope = (CLOCK_NAME if _is_clock(parts) else metric), ""
        named.setdefault((metric, scope, rank), []).extend(parts)
    return named


def _is_clock(parts: Sequence[_Part]) -> bool:
    """Return whether the values of a bare time, in the order of the log, only grow."""
    offsets = np.concatenate([rows.offsets for rows, _, _ in parts])
    order = np.argsort(offsets, kind="stable")
    steps = np.concatenate([rows.steps for rows, _, _ in parts])[order]
    values = np.concatenate([rows.values[:, index] for rows, index, _ in parts])[order]
    return since_start(steps, values)


def _that_count(tables: Iterable[_Table]) -> Iterator[tuple[_Table, _Rows]]:
    """Yield the tables that are series, with their rows."""
    known = [(table, rows) for table in tables if (rows := table.rows()) is not None]
    sure = {id(table) for table, rows in known if table.key.certain or _credible(table, rows)}
    listed = [
        (table, rows)
        for table, rows in known
        if table.key.listed
        and id(table) not in sure
        and table.total < _REPEATS  # what repeats has to change
    ]
    while listed:
        lines = [rows.lines for table, rows in known if table.key.listed and id(table) in sure]
        near = [table for table, rows in listed if lines and _stand_beside(rows.lines, lines)]
        if not near:
            break
        sure |= {id(table) for table in near}
        listed = [(table, rows) for table, rows in listed if id(table) not in sure]
    yield from ((table, rows) for table, rows in known if id(table) in sure)


def _stand_beside(lines: Integers, others: Sequence[Integers]) -> bool:
    """Return whether each of some lines has one of others not far from it: they are of one list."""
    all_others = np.sort(np.concatenate(others))
    after = np.searchsorted(all_others, lines)
    last = len(all_others) - 1
    before = np.abs(lines - all_others[np.clip(after - 1, 0, last)])
    behind = np.abs(lines - all_others[np.clip(after, 0, last)])
    return bool((np.minimum(before, behind) <= _BESIDE).all())


def _credible(table: _Table, rows: _Rows) -> bool:
    """Return whether lines of an unknown layout are a series: they repeat, and their counter grows."""
    if table.total < _REPEATS:
        return False
    names = [name for name, _ in table.key.columns]
    counters = [name for name in ("step", "epoch") if name in names]
    if not counters:
        return bool((rows.values != rows.values[0]).any())
    counter = rows.values[:, names.index(counters[0])]
    return bool(counter[-1] > counter[0] and (np.diff(counter) >= 0).mean() > 0.5)


def _series(origin: Origin, name: tuple[str, str, int], parts: Sequence[_Part]) -> Series:
    metric, scope, rank = name
    offsets = np.concatenate([rows.offsets for rows, _, _ in parts])
    order = np.argsort(offsets, kind="stable")

    def column(values: Iterator[Any]) -> Any:
        return np.concatenate(list(values))[order]

    return Series(
        metric=metric,
        role=origin.role,
        index=origin.index,
        rank=origin.rank if rank < 0 else rank,
        scope=scope,
        file=origin.file,
        steps=column(rows.steps for rows, _, _ in parts),
        values=column(rows.values[:, index] for rows, index, _ in parts),
        times=column(rows.times for rows, _, _ in parts),
        offsets=offsets[order],
        lines=column(rows.lines for rows, _, _ in parts),
        total=sum(total for _, _, total in parts),
    )

"""The rows of tables whose columns are named in a line above, read from a block of a log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from airflow_training.logs.engine.formats import LONGEST_METRIC_LINE, ColumnsLike
from airflow_training.logs.engine.layouts import LineLayout, LineValues, layout_of

__all__ = ["OpenTable", "rows_below"]

_MOST_OTHERS = 16
"""Lines in a row that are none of a table: then it is over."""


class OpenTable(NamedTuple):
    """A table that may go on."""

    columns: ColumnsLike
    others: int = 0
    """Lines since its last row."""


def rows_below(
    table: OpenTable, block: bytearray, start: int, end: int
) -> Iterator[tuple[OpenTable | None, LineLayout | None, LineValues | None, int]]:
    """Yield, for each line of `block[start:end]`, the table as it is then, and of a row layout, values and place.

    It ends with the table, for which None is yielded.
    """
    others = table.others
    at = start
    while at < end:
        stop = block.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        line = bytes(block[at : min(stop, at + LONGEST_METRIC_LINE + 1)])
        parsed = table.columns.read(line) if len(line) <= LONGEST_METRIC_LINE else None
        if parsed is not None:
            others = 0
            layout = layout_of(line, parsed)
            yield OpenTable(table.columns), layout, layout.read_spans(line), at
        elif not table.columns.may_stand_between(line):
            others += 1
            if others > _MOST_OTHERS:
                yield None, None, None, at
                return
        at = stop + 1
    yield OpenTable(table.columns, others), None, None, end

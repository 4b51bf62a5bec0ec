"""The rows of tables whose columns are named in a line above, read from a block of a log."""

from __future__ import annotations

from typing import NamedTuple

from airflow_training.logs.engine.formats import LONGEST_METRIC_LINE, ColumnsLike
from airflow_training.logs.engine.layouts import LineLayout, LineValues, layout_of, letters

__all__ = ["OpenTable", "RowLayouts", "TableRow", "rows_below"]

_MOST_OTHERS = 16
"""Lines in a row that are none of a table: then it is over."""
_MOST_LAYOUTS = 256
"""Of the rows of one table."""


class OpenTable(NamedTuple):
    """A table that may go on."""

    line: bytes
    """That names its columns."""
    others: int = 0
    """Lines since its last row."""
    at: int = 0
    """Offset in the log from which on it was not read yet."""


class TableRow(NamedTuple):
    layout: LineLayout
    values: LineValues
    place: int
    """In the block."""


class RowLayouts:
    """The layouts of the rows below one line of columns: what is like a row before is read by what that said."""

    def __init__(self, columns: ColumnsLike) -> None:
        self.columns = columns
        self._known: dict[tuple[bytes, int], list[LineLayout]] = {}
        self._count = 0

    def read(self, line: bytes) -> tuple[LineLayout, LineValues] | None:
        """Layout and values of a row; None for a line that is none."""
        # how wide its columns are tells nothing; where the comma stands between them, it is in no number
        bare = b" ".join(line.split())
        key = (letters(bare), bare.count(b","))
        for layout in self._known.get(key, ()):
            if (row := layout.read(bare)) is not None:
                return layout, row
        parsed = self.columns.read(bare)
        if parsed is None:
            return None
        layout = layout_of(bare, parsed)
        if (
            self._count < _MOST_LAYOUTS
            and not layout.has_timestamp
            and layout.read(bare) is not None
        ):
            self._known.setdefault(key, []).insert(0, layout)
            self._count += 1
        return layout, layout.read_spans(bare)


def rows_below(
    table: OpenTable, layouts: RowLayouts, block: bytearray, start: int, end: int
) -> tuple[list[TableRow], int | None]:
    """Return the rows in `block[start:end]`, and how many lines stand behind the last; None: the table is over."""
    rows: list[TableRow] = []
    others = table.others
    at = start
    while at < end:
        stop = block.find(b"\n", at, end)
        stop = end if stop < 0 else stop
        line = bytes(block[at : min(stop, at + LONGEST_METRIC_LINE + 1)])
        row = layouts.read(line) if len(line) <= LONGEST_METRIC_LINE else None
        if row is not None:
            others = 0
            rows.append(TableRow(*row, at))
        elif not layouts.columns.may_stand_between(line):
            others += 1
            if others > _MOST_OTHERS:
                return rows, None
        at = stop + 1
    return rows, others

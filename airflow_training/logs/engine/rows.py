"""Lines of one layout as columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow_training.logs.engine.layouts import LineLayout, LineValues

if TYPE_CHECKING:
    import numpy as np

    from airflow_training.logs.engine.formats import Builder
    from airflow_training.logs.model import Floats, Integers


@dataclass(frozen=True)
class Rows:
    """Rows of one layout, in the order of the log."""

    layout: LineLayout
    values: np.ndarray[Any, np.dtype[np.float64]]
    """[rows, columns]."""
    offsets: Integers
    lines: Integers
    times: Floats
    """NaN for none."""
    ranks: Integers
    """-1 for none."""

    def add_to(self, builder: Builder, *, rank: int | None) -> None:
        """Hand the rows over; `rank` is that of lines that name none."""
        ranks = self.ranks
        if rank is not None:
            ranks = ranks.copy()
            ranks[ranks < 0] = rank
        builder.add(self.layout.parsed, self.values, self.offsets, self.lines, self.times, ranks)


def as_rows(layout: LineLayout, found: Sequence[tuple[LineValues, int, int]]) -> Rows:
    """Return single rows, each with its offset and line, as columns."""
    import numpy as np  # a log without metrics does not need it

    return Rows(
        layout,
        np.array([row.values for row, _, _ in found], dtype=np.float64),
        np.array([offset for _, offset, _ in found], dtype=np.int64),
        np.array([line for _, _, line in found], dtype=np.int64),
        np.array([row.time for row, _, _ in found], dtype=np.float64),
        np.array([row.rank for row, _, _ in found], dtype=np.int64),
    )

"""Prices of rows of tables, kept between searches.

A row's price on equal nodes does not depend on how many of them there are, so a search on a cluster that
lost a node finds the price of every strategy that both have.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from airflow_training.planning.cluster import NodeGroup
from airflow_training.planning.constants import TimeConstants
from airflow_training.planning.cost.tables import rows_of
from airflow_training.planning.plan import Candidates, Workload
from airflow_training.planning.splitting import Same

Array = npt.NDArray[np.float64]
Row = tuple[int, ...]

_WORKLOADS = 8
_SETTINGS = 4
"""Kinds of nodes and constants that prices of a workload are kept for."""
_ROWS = 50_000
"""Rows that are kept for each of them; then it begins anew."""
_COLUMNS = tuple(column.name for column in fields(Candidates))
_Setting = tuple[tuple[NodeGroup, ...], TimeConstants]


@dataclass(slots=True)
class _Prices:
    """What is known of one workload, the setting used last at the end."""

    rows: list[tuple[_Setting, dict[Row, float]]] = field(default_factory=list)

    def on(self, setting: _Setting) -> dict[Row, float]:
        for known, rows in self.rows:
            if known == setting:
                return rows
        found: dict[Row, float] = {}
        self.rows = [*self.rows[1 - _SETTINGS :], (setting, found)]
        return found


@lru_cache(maxsize=_WORKLOADS)
def _prices(_view: Same, _batch: int, _precision: str, _runtime: str) -> _Prices:
    return _Prices()


def row_by_row(
    workload: Workload,
    groups: tuple[NodeGroup, ...],
    constants: TimeConstants,
    table: Candidates,
    price: Callable[[Candidates], Array],
) -> Array:
    """Return the price of each row of a table; `price` works out those that are not known yet."""
    if len(groups) == 1:
        groups = (replace(groups[0], name="", count=1),)
    known = _prices(
        Same(workload.view), workload.global_batch, workload.precision, workload.runtime
    ).on((groups, constants))
    keys = list(zip(*(getattr(table, name).tolist() for name in _COLUMNS), strict=True))
    found = np.asarray([known.get(key, np.nan) for key in keys], dtype=np.float64)
    missing = np.flatnonzero(np.isnan(found))
    if len(missing):
        found[missing] = price(rows_of(table, missing))
        if len(known) + len(missing) > _ROWS:
            known.clear()
        known.update({keys[place]: float(found[place]) for place in missing})
    return found

"""Tables of strategies: rows taken, put together, crossed, and turned into strategies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.plan import StrategyTable, Workload
from airflow_training.planning.view.program import Recompute
from airflow_training.planning.view.strategy import Overlap, Strategy

Ints = npt.NDArray[np.int64]

COLUMNS = tuple(field.name for field in fields(StrategyTable))
TEXTS: Mapping[str, tuple[str, ...]] = {
    "recompute": get_args(Recompute),
    "overlap": get_args(Overlap),
}
"""Columns that hold codes, and the text of each code."""


def build(columns: Mapping[str, npt.ArrayLike]) -> StrategyTable:
    """Return a table of `columns`; a column that is missing is 1, `none`, 0 or false throughout."""
    length = len(np.asarray(next(iter(columns.values()))))
    whole: dict[str, Any] = {}
    for name in COLUMNS:
        kind = np.bool_ if name == "sequence_parallel" else np.int64
        start = int(name not in ("zero", "sequence_parallel", *TEXTS))
        whole[name] = np.asarray(columns.get(name, np.full(length, start)), dtype=kind)
    return StrategyTable(**whole)


def size(candidates: StrategyTable) -> int:
    """Return the number of rows."""
    return len(candidates.tp)


def devices(candidates: StrategyTable) -> Ints:
    """Return how many devices each row takes."""
    return candidates.tp * candidates.pp * candidates.dp * candidates.cp


def take(candidates: StrategyTable, rows: npt.NDArray[Any] | slice) -> StrategyTable:
    """Return the rows of an index, a mask or a slice."""
    return StrategyTable(**{name: getattr(candidates, name)[rows] for name in COLUMNS})


def stack(tables: Sequence[StrategyTable]) -> StrategyTable:
    """Return tables below each other."""
    return StrategyTable(
        **{name: np.concatenate([getattr(table, name) for table in tables]) for name in COLUMNS}
    )


def cross(columns: Mapping[str, Ints], name: str, values: Sequence[int]) -> dict[str, Ints]:
    """Return every row of `columns` with every one of `values` in a new column, row by row."""
    rows = len(next(iter(columns.values()))) if columns else 1
    wide = {key: np.repeat(column, len(values)) for key, column in columns.items()}
    wide[name] = np.tile(np.asarray(values, dtype=np.int64), rows)
    return wide


def value_at(candidates: StrategyTable, name: str, row: int) -> int | bool | str:
    """Return one cell as people write it."""
    cell = getattr(candidates, name)[row]
    if name in TEXTS:
        return TEXTS[name][int(cell)]
    return bool(cell) if name == "sequence_parallel" else int(cell)


def strategy_at(candidates: StrategyTable, row: int, workload: Workload) -> Strategy:
    """Return one row as a strategy, with the batch and precision of the workload."""
    cells: dict[str, Any] = {name: value_at(candidates, name, row) for name in COLUMNS}
    return Strategy(
        **cells,
        global_batch=workload.global_batch,
        schedule="interleaved" if cells["virtual_stages"] > 1 else "1f1b",
        precision=workload.precision,
    )

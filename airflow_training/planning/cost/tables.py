"""Strategies as tables of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import get_args

import numpy as np
import numpy.typing as npt

from airflow_training.planning.view.plan import StrategyTable
from airflow_training.planning.view.program import Recompute
from airflow_training.planning.view.strategy import Overlap, Strategy

RECOMPUTE: tuple[Recompute, ...] = get_args(Recompute)
OVERLAP: tuple[Overlap, ...] = get_args(Overlap)


def as_table(strategies: Sequence[Strategy]) -> StrategyTable:
    """Return strategies as the rows of a table; what it has no columns for is left out."""

    def numbers(name: str) -> npt.NDArray[np.int64]:
        return np.array([getattr(strategy, name) for strategy in strategies], dtype=np.int64)

    return StrategyTable(
        tp=numbers("tp"),
        pp=numbers("pp"),
        dp=numbers("dp"),
        cp=numbers("cp"),
        ep=numbers("ep"),
        virtual_stages=numbers("virtual_stages"),
        micro_batch=numbers("micro_batch"),
        zero=numbers("zero"),
        sequence_parallel=np.array([strategy.sequence_parallel for strategy in strategies]),
        recompute=np.array([RECOMPUTE.index(s.recompute) for s in strategies], dtype=np.int64),
        overlap=np.array([OVERLAP.index(s.overlap) for s in strategies], dtype=np.int64),
    )


def rows_of(table: StrategyTable, rows: npt.NDArray[np.int64]) -> StrategyTable:
    """Return some rows of a table."""
    return StrategyTable(
        **{column.name: getattr(table, column.name)[rows] for column in fields(table)}
    )


def distinct(
    columns: Sequence[npt.NDArray[np.int64]],
) -> tuple[list[npt.NDArray[np.int64]], npt.NDArray[np.int64]]:
    """Return the different rows of a few columns of small numbers, column by column, and which each is.

    As `numpy.unique` along an axis does, but by one number for each row, which is several times faster.
    """
    code = np.zeros_like(columns[0])
    for column in columns:
        code = code * (int(column.max()) + 1) + column
    _, first, of_row = np.unique(code, return_index=True, return_inverse=True)
    return [column[first] for column in columns], of_row.reshape(-1)

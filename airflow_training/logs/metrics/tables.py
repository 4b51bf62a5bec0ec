"""Series as Arrow tables and Parquet: one row per point. Needs pyarrow, from the extra `logs`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from airflow_training.logs.model import Series

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["arrow_table", "write_parquet"]


def arrow_table(series: Sequence[Series]) -> pa.Table:
    """Return the points of all series, series after series, each in the order of its log.

    Columns: metric, scope, role, file (dictionaries), index, rank (int32), step, value, time (float64; UTC seconds),
    line, offset (int64). What a log does not tell is null; a value that is NaN stays NaN.
    """
    import pyarrow as pa

    def repeated(name: str, kind: Any) -> Any:
        lengths = [len(each.values) for each in series]
        entries = pa.array([getattr(each, name) for each in series], type=kind)
        which = pa.array(np.repeat(np.arange(len(series), dtype=np.int32), lengths))
        if pa.types.is_string(kind):
            return pa.DictionaryArray.from_arrays(which, entries)
        return entries.take(which)

    def points(name: str, kind: Any, *, unknown: bool) -> Any:
        parts = [getattr(each, name) for each in series]
        values = np.concatenate(parts) if parts else np.zeros(0)
        return pa.array(values, type=kind, from_pandas=unknown)

    def places(name: str) -> Any:
        values = np.concatenate([getattr(each, name) for each in series] or [np.zeros(0)])
        return pa.array(values, type=pa.int64(), mask=values < 0)

    return pa.table(
        {
            "metric": repeated("metric", pa.string()),
            "scope": repeated("scope", pa.string()),
            "role": repeated("role", pa.string()),
            "index": repeated("index", pa.int32()),
            "rank": repeated("rank", pa.int32()),
            "step": points("steps", pa.float64(), unknown=True),
            "value": points("values", pa.float64(), unknown=False),
            "time": points("times", pa.float64(), unknown=True),
            "file": repeated("file", pa.string()),
            "line": places("lines"),
            "offset": places("offsets"),
        }
    )


def write_parquet(series: Sequence[Series], sink: BinaryIO) -> None:
    """Write the points of all series as one Parquet file."""
    import pyarrow.parquet as pq

    pq.write_table(arrow_table(series), sink, compression="zstd")

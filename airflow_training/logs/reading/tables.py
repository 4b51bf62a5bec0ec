"""Files of rows that a job writes while it trains (predictions, metrics) and reads (samples): CSV, JSON lines, Parquet."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_training.logs.model import Origin, Series
from airflow_training.logs.reading.opening import open_log
from airflow_training.logs.reading.source import BLOCK_BYTES, LogUnreadable

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ENDINGS", "as_series", "is_table", "read_table", "rows_per_file"]

ENDINGS = (".csv", ".jsonl", ".ndjson", ".parquet")
_PACKED = (".gz", ".zst")
_MOST_BYTES = 256 << 20
_STEPS = ("step", "global_step", "iteration", "iter", "epoch")
_TIMES = ("time", "timestamp")


def is_table(name: str) -> bool:
    """Return whether a path or URL names a file of rows: by its ending, compressed or not."""
    return _ending(name) in ENDINGS


def read_table(name: str) -> pa.Table:
    """Return the rows that are complete: of a file that is still written, without the last line.

    Raises LogUnreadable, also for more than 256 MiB of text.
    """
    try:
        import pyarrow as pa
    except ImportError:
        hint = "pip install 'airflow-training[logs]'"
        raise LogUnreadable(f"{name}: tables need pyarrow: {hint}") from None
    text = _text(name)
    try:
        return _parsed(_ending(name), text)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise LogUnreadable(f"{name}: {error}") from error


def as_series(table: pa.Table, origin: Origin) -> tuple[Series, ...]:
    """Return a series for each column of numbers; a column `step` or `epoch` says their steps.

    `lines` count the rows from 1; offsets are 0, as rows of Parquet have none.
    """
    import numpy as np

    columns = {name.lower(): _numbers(table[name]) for name in table.column_names}
    numbers = {name: values for name, values in columns.items() if values is not None}
    unknown = np.full(table.num_rows, np.nan)
    step = next((name for name in _STEPS if name in numbers), None)
    time = next((name for name in _TIMES if name in numbers), None)
    return tuple(
        Series(
            metric=name,
            role=origin.role,
            index=origin.index,
            rank=origin.rank,
            file=origin.file,
            steps=unknown if step is None else numbers[step],
            values=values,
            times=unknown if time is None else numbers[time],
            offsets=np.zeros(table.num_rows, dtype=np.int64),
            lines=np.arange(1, table.num_rows + 1),
            total=table.num_rows,
        )
        for name, values in numbers.items()
        if name not in (step, time)
    )


def rows_per_file(names: Iterable[str]) -> Mapping[str, int]:
    """Return how many samples files of rows hold; other files are left out. Raises LogUnreadable."""
    return {name: _rows(name) for name in names if is_table(name)}


def _rows(name: str) -> int:
    ending = _ending(name)
    if ending == ".parquet":
        from pyarrow import parquet

        return int(parquet.read_metadata(io.BytesIO(_text(name))).num_rows)
    log = open_log(name)
    count, offset, last = 0, 0, b"\n"
    try:
        while True:
            part = log.read(offset, BLOCK_BYTES)
            count += part.data.count(b"\n")
            offset, last = part.next_offset, part.data[-1:] or last
            if part.end:
                return max(0, count + (last != b"\n") - (ending == ".csv"))
    finally:
        log.close()


def _ending(name: str) -> str:
    plain = name.lower().partition("?")[0]
    for packed in _PACKED:
        plain = plain.removesuffix(packed)
    stem, dot, ending = plain.rpartition("/")[2].rpartition(".")
    return dot + ending if stem else ""


def _text(name: str) -> bytes:
    log = open_log(name)
    try:
        blocks = bytearray()
        while len(blocks) <= _MOST_BYTES:
            part = log.read(len(blocks), BLOCK_BYTES)
            blocks += part.data
            if part.end:
                break
        else:
            raise LogUnreadable(f"{name}: more than {_MOST_BYTES >> 20} MiB of rows")
    finally:
        log.close()
    if _ending(name) == ".parquet":
        return bytes(blocks)
    return bytes(blocks[: blocks.rfind(b"\n") + 1])


def _parsed(ending: str, text: bytes) -> pa.Table:
    from pyarrow import csv, json, parquet

    readers = {".parquet": parquet.read_table, ".csv": csv.read_csv}
    return readers.get(ending, json.read_json)(io.BytesIO(text))


def _numbers(column: pa.ChunkedArray) -> Any:
    """Return a column as float64, NaN where a row has nothing; None for one that is no number."""
    import numpy as np
    import pyarrow as pa

    kind = column.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind)):
        return None
    values = column.cast(pa.float64()).to_numpy(zero_copy_only=False)
    return np.asarray(values, dtype=np.float64)

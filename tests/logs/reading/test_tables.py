"""Prediction files as tables and series; samples per file."""

from __future__ import annotations

import gzip
import io
import math

import pyarrow as pa
import pytest
from pyarrow import parquet

from airflow_training.logs.health.balance import imbalance
from airflow_training.logs.model import Origin
from airflow_training.logs.reading.source import LogUnreadable
from airflow_training.logs.reading.tables import as_series, is_table, read_table, rows_per_file

CSV = b"step,probability,label\n10,0.25,cat\n20,,dog\n30,0.75,cat\n"
LINES = b'{"step": 10, "probability": 0.25, "label": "cat"}\n{"step": 20, "label": "dog"}\n{"step": 30, "probability": 0.75, "label": "cat"}\n'


def as_parquet() -> bytes:
    target = io.BytesIO()
    rows = {"step": [10, 20, 30], "probability": [0.25, None, 0.75], "label": ["cat", "dog", "cat"]}
    parquet.write_table(pa.table(rows), target)
    return target.getvalue()


FILES = {
    "p.csv": CSV,
    "p.csv.gz": gzip.compress(CSV),
    "p.jsonl": LINES,
    "p.parquet": as_parquet(),
}


@pytest.fixture(params=FILES)
def file(request, tmp_path) -> str:
    path = tmp_path / request.param
    path.write_bytes(FILES[request.param])
    return str(path)


def test_columns_of_numbers_are_series(file):
    table = read_table(file)
    assert table.column_names == ["step", "probability", "label"]
    (series,) = as_series(table, Origin(file=file, role="worker", index=2))
    assert (series.metric, series.role, series.index) == ("probability", "worker", 2)
    assert series.steps.tolist() == [10, 20, 30]
    assert series.values[[0, 2]].tolist() == [0.25, 0.75]
    assert math.isnan(series.values[1])
    assert series.lines.tolist() == [1, 2, 3]
    assert rows_per_file([file, "train.log"]) == {file: 3}


@pytest.mark.parametrize("name", ["p.csv", "p.jsonl"])
def test_a_row_that_is_being_written_waits(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name][:-9])
    assert read_table(str(path)).num_rows == 2


@pytest.mark.parametrize(
    ("name", "text"), [("p.parquet", b"PAR"), ("p.jsonl", b"{\n"), ("p.csv", b"")]
)
def test_what_is_no_table_says_so(name, text, tmp_path):
    path = tmp_path / name
    path.write_bytes(text)
    with pytest.raises(LogUnreadable, match=name):
        read_table(str(path))


def test_names():
    assert is_table("s3://bucket/p.csv.zst")
    assert not is_table("train.log")
    assert not is_table("csv")


def test_uneven_samples_per_file(tmp_path):
    for number, rows in enumerate([100, 110, 400]):
        (tmp_path / f"{number}.csv").write_text("x\n" + "1\n" * rows)
    names = [str(tmp_path / f"{number}.csv") for number in range(3)]
    finding = imbalance(rows_per_file(names), of="samples", per="file")
    assert f"{names[2]} has 400" in finding.message

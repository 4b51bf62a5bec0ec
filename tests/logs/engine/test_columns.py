"""Rows below a line that names their columns, however the log is cut into blocks and stretches."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_training.logs import engine
from airflow_training.logs.engine import scan, stretches
from airflow_training.logs.engine.columns import RowLayouts
from airflow_training.logs.metrics import formats
from airflow_training.logs.metrics.columns import columns_of
from airflow_training.logs.model import Origin


def points(text: str, folder: Path) -> dict[str, list[tuple[float, float, int]]]:
    """Return step, value and line of each point of each metric."""
    log = folder / "log"
    log.write_text(text)
    found = scan(Origin(file="log"), log, signatures=(), formats=formats()).series
    return {
        each.metric: [
            *zip(each.steps.tolist(), each.values.tolist(), each.lines.tolist(), strict=True)
        ]
        for each in found
    }


HEAD = "step      train_loss  valid_loss  time    \n"


@pytest.mark.parametrize("block", [256, 1000, 1 << 20])
def test_rows_are_found_across_blocks(tmp_path, monkeypatch, block):
    monkeypatch.setattr(stretches, "BLOCK_BYTES", block)
    monkeypatch.setattr(stretches, "_FIRST_BLOCKS", block)
    rows = [
        f"{n}         {1 / (n + 1):.6f}    {2 / (n + 1):.6f}    00:31     \n" for n in range(200)
    ]
    found = points("hello\n" + HEAD + "".join(rows), tmp_path)
    expected = [(n, float(f"{1 / (n + 1):.6f}"), n + 3) for n in range(200)]
    assert found["loss"] == expected
    assert [value for _, value, _ in found["eval_loss"]] == [
        float(f"{2 / (n + 1):.6f}") for n in range(200)
    ]


def table(first: int, end: int) -> str:
    """Return rows that fit below HEAD, with other lines between."""
    rows = [
        f"{n:<10}{1 / (n + 1):<12.6f}{2 / (n + 1):<12.6f}00:31     \n" for n in range(first, end)
    ]
    return "".join(row + "a line of words\n" * (n % 3) for n, row in enumerate(rows))


@pytest.mark.parametrize("processes", [2, 3])
def test_a_table_goes_on_in_the_stretches_behind_it(tmp_path, monkeypatch, processes):
    for each in (engine, stretches):
        monkeypatch.setattr(each, "SHARED_BYTES", 1000)
    text = "hello\n" + HEAD + table(0, 900) + "words\n" * 300 + "1  2  3  00:31\n" + HEAD
    text += table(900, 950)
    log = tmp_path / "log"
    log.write_text(text)
    alone, shared = (
        scan(Origin(file="log"), log, signatures=(), formats=formats(), processes=each).series
        for each in (1, processes)
    )
    assert [(each.metric, each.values.tolist(), each.lines.tolist()) for each in shared] == [
        (each.metric, each.values.tolist(), each.lines.tolist()) for each in alone
    ]
    assert [*alone[0].steps] == [*range(950)]


def test_a_table_goes_on_in_a_log_that_is_remembered(tmp_path, monkeypatch):
    monkeypatch.setattr(engine, "WORTH_BYTES", 1000)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    log = tmp_path / "log"
    for end in (100, 200, 300):
        log.write_text(HEAD + table(0, 100) + table(100, end) * (end > 100))
        (loss,) = (
            each
            for each in scan(
                Origin(file="log"), log, signatures=(), formats=formats(), remember=True
            ).series
            if each.metric == "loss"
        )
        assert [*loss.steps] == [*range(end)]


ROWS = [
    b"7,0.25,00:31",
    b"1,234,0.5",
    b"1,234,5,0.5",
    b"1,234.5,0.5",
    b"  12  0.5  1:02:03",
    b"12\t  .5  -",
    b"1,234  0.5  3",
    b"| 12 | nan |  1:02 |",
    b"| 1/20 | 5% | 12ms |",
    b"3 | 1e-3 | 00:31",
    b"words and words",
    b"1 2 3 4",
    b"nan  0.5  \xe2\x80\x94",
    b"-1  -0.5  2",
]


@pytest.mark.parametrize("head", [b"epoch,loss,time", b"epoch  loss  time", b"epoch,loss"])
def test_a_row_is_read_alike_whatever_rows_came_before(head):
    columns = columns_of(head)
    assert columns is not None
    for before in ROWS:
        layouts = RowLayouts(columns)
        layouts.read(before)
        for row in ROWS:
            found, alone = layouts.read(row), RowLayouts(columns).read(row)
            parsed = columns.read(row)
            assert (found is None) == (alone is None) == (parsed is None)
            if found is not None and alone is not None:
                assert str(found[1]) == str(alone[1])


def test_a_table_ends_with_other_lines_and_the_next_one_has_its_own_columns(tmp_path):
    text = HEAD + "0  0.5  0.6  00:31\n" + "words\n" * 20 + "1  0.4  0.5  00:31\n"
    text += "Step\tTraining Loss\tAccuracy\n10\t0.25\t0.75\n"
    found = points(text, tmp_path)
    assert [value for _, value, _ in found["loss"]] == [0.5, 0.25]
    assert found["accuracy"] == [(10, 0.75, 25)]


@pytest.mark.parametrize(
    "line",
    [
        "The loss  is computed here",
        "step, loss and accuracy are logged.",
        "Loading model  step by step",
        "name  value",
        "epoch  3  loss  0.5",
        "loss",
        "epoch  time",
        "usage: train.py --epoch  N --loss  NAME",
    ],
)
def test_sentences_and_values_name_no_columns(line):
    assert columns_of(line.encode()) is None


@pytest.mark.parametrize(
    "row", ["1  0.5", "1  0.5  x  00:31", "1  0.5  0.6  00:31  7", "a  b  c  d"]
)
def test_what_does_not_fit_is_no_row(row):
    columns = columns_of(HEAD.strip().encode())
    assert columns is not None
    assert columns.read(row.encode()) is None

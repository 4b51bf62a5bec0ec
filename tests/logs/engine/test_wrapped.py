"""What the library rich has wrapped is read as the one record that it was."""

from __future__ import annotations

import pytest

from airflow_training.logs.engine.scanning import machine_for
from airflow_training.logs.engine.stretches import as_scan, scan_stretch
from airflow_training.logs.engine.wrapped import join_wrapped
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from tests.logs.engine.sources import Dribble

LOG = b"""\
preparing
[10:00:01] INFO     step: 100 loss: 2.5 lr: 0.0001        train.py:33
                    grad_norm: 1.5 memory: 12.5
                    GiB tokens_per_second:
                    12000
           INFO     step: 200 loss: 2.4 lr: 0.0001        train.py:33
                    grad_norm: 1.4 memory: 12.5
                    GiB tokens_per_second:
                    12500
step: 300 loss: 2.3
"""


def points(data: bytes, sizes: list[int]) -> dict[str, list[tuple[float, float, int]]]:
    """Return (step, value, line) of each metric."""
    machine = machine_for((), formats(), size=len(data))
    found = scan_stretch(machine, Origin(file="x"), Dribble(data, sizes), 0, None)
    assert found.tail is not None
    scan = as_scan(Origin(file="x"), found, found.tail)
    assert scan.lines == data.count(b"\n")
    return {
        each.metric: list(
            zip(each.steps.tolist(), each.values.tolist(), each.lines.tolist(), strict=True)
        )
        for each in scan.series
    }


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_a_record_over_several_lines_is_one(size):
    found = points(LOG, [size])
    assert found["loss"] == [(100, 2.5, 2), (200, 2.4, 6), (300, 2.3, 10)]
    assert found["grad_norm"] == [(100, 1.5, 2), (200, 1.4, 6)]
    assert found["tokens_per_second"] == [(100, 12000, 2), (200, 12500, 6)]
    assert found["memory_bytes"] == [(100, 12.5 * 2**30, 2), (200, 12.5 * 2**30, 6)]


@pytest.mark.parametrize(
    "text",
    [
        b"step 1\n                    loss: 2\n",
        b'[10:00:01] INFO     step 1\n                    Traceback:\n                    File "a"\n',
        b"[10:00:01] INFO     hello\n                    world\n",
    ],
    ids=["no-head", "traceback", "not-about-training"],
)
def test_others_stay_as_they_are(text):
    block = bytearray(text)
    assert join_wrapped(block, len(block), complete=True) == (len(text), ())
    assert block == text


def test_a_record_that_may_go_on_waits():
    block = bytearray(LOG[: LOG.index(b"GiB")])
    joined = join_wrapped(block, len(block), complete=False)
    assert joined.size == LOG.index(b"[10:00:01]")

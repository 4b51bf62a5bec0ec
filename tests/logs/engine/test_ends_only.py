"""Of a signature that many lines hold, a log's first and last hits are found without a look at those between."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_training.logs.diagnosis.catalogue import load
from airflow_training.logs.diagnosis.markers import CHECKPOINT, MARKERS
from airflow_training.logs.diagnosis.scanning import patterns
from airflow_training.logs.engine import scan, scanning, stretches
from airflow_training.logs.lines.prefixes import LinePrefix, prefix
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from benchmarks.logs_generate import write

SIGNATURES = [each for each in patterns(load()) if each.name == CHECKPOINT]
SIZE = 6 << 20
MOST_A_BLOCK = 100
"""Lines that are looked at in a block of 1 MiB; it holds some 500 that say something of a checkpoint."""


@pytest.mark.parametrize("metrics", [True, False])
def test_few_of_many_lines_about_checkpoints_are_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, metrics: bool
) -> None:
    path = tmp_path / "log"
    write(path, SIZE, every=3)
    lines = path.read_bytes().split(b"\n")
    said = re.compile(MARKERS[CHECKPOINT].encode())
    saved = [number for number, line in enumerate(lines, 1) if said.search(line)]
    looked: list[bytes] = []
    look = prefix

    def count(line: bytes) -> LinePrefix:
        looked.append(line)
        return look(line)

    monkeypatch.setattr(scanning, "prefix", count)
    found = scan(
        *(Origin(file="x"), path),
        signatures=SIGNATURES,
        formats=formats() if metrics else None,
        processes=1,
    )
    blocks = SIZE / scanning.BLOCK_BYTES + 4  # the first ones are smaller
    assert len(saved) > 2 * MOST_A_BLOCK * blocks
    assert len(looked) < MOST_A_BLOCK * blocks
    hits = [hit.line for hit in found.hits if hit.signature == CHECKPOINT]
    assert hits == saved[:16] + saved[-16:]


def test_the_ends_are_the_same_however_a_log_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stretches, "SHARED_BYTES", 10_000)
    monkeypatch.setattr("airflow_training.logs.engine.SHARED_BYTES", 10_000)
    path = tmp_path / "log"
    write(path, SIZE, every=20)
    one, two = (
        scan(Origin(file="x"), path, signatures=SIGNATURES, processes=processes)
        for processes in (1, 2)
    )
    assert one.hits == two.hits
    assert all(hit.before for hit in one.hits)

"""Looking again reads only what is new and finds, all looks together, what one scan finds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_training.logs.engine import START, Position, look, machine_for
from airflow_training.logs.engine.scanning import Machine
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from airflow_training.logs.reading.local import LocalFile
from tests.logs.engine.sources import Dribble
from tests.logs.engine.text import SIGNATURES, logs

ORIGIN = Origin(file="x")
FORMATS = formats()


def machine() -> Machine:
    return machine_for(SIGNATURES, FORMATS, size=0)


def points(scans):
    """Return all points of all scans by metric and rank."""
    found: dict[tuple[str, str, int | None], list[tuple[float, ...]]] = {}
    for one in scans:
        for series in one.series:
            rows = zip(series.offsets, series.lines, series.values, series.steps, strict=True)
            found.setdefault((series.metric, series.scope, series.rank), []).extend(
                tuple(map(float, row)) for row in rows
            )
    return {key: np.array(sorted(rows)) for key, rows in found.items()}


MEGATRON = b" iteration %d/ 500 | consumed samples: 4 | elapsed time per iteration (ms): 12.5 | lm loss: 2.%d |\n"


def test_looks_add_up_to_one_scan():
    lines = []
    for step in range(40):
        lines.append(MEGATRON % (step, step))
        lines.append(
            b"{'loss': 1.%d, 'grad_norm': 0.5, 'learning_rate': 1e-05, 'epoch': 0.1}\n" % step
        )
        if step % 10 == 3:
            lines.append(b"[rank1]: loss is nan\r\n")
    data = b"".join(lines)
    whole, _ = look(machine(), ORIGIN, Dribble(data, [1 << 20]), START, finished=True)
    for cut in range(0, len(data), 97):
        first, position = look(machine(), ORIGIN, Dribble(data[:cut], [1 << 20]), START)
        second, _ = look(machine(), ORIGIN, Dribble(data, [1 << 20]), position, finished=True)
        counts = {key: first.counts.get(key, 0) + second.counts.get(key, 0) for key in whole.counts}
        assert counts == whole.counts
        assert first.bytes + second.bytes == len(data)
        assert [(hit.line, hit.offset) for hit in (*first.hits, *second.hits)] == [
            (hit.line, hit.offset) for hit in whole.hits
        ]
        ours, theirs = points([first, second]), points([whole])
        assert ours.keys() == theirs.keys()
        for key, rows in ours.items():
            np.testing.assert_array_equal(rows, theirs[key])


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(data=logs, cuts=st.lists(st.integers(0, 5000), max_size=4))
def test_no_hit_is_lost_or_seen_twice(data, cuts):
    whole, _ = look(machine(), ORIGIN, Dribble(data, [1 << 20]), START, finished=True)
    position, seen = START, []
    for cut in [*sorted(cuts), len(data)]:
        found, position = look(
            machine(), ORIGIN, Dribble(data[:cut], [1 << 20]), position, finished=cut == len(data)
        )
        seen += [(hit.signature, hit.rank, hit.line, hit.offset) for hit in found.hits]
    expected = [(hit.signature, hit.rank, hit.line, hit.offset) for hit in whole.hits]
    assert set(expected) <= set(seen)
    assert len(seen) == len(set(seen))


def test_an_unfinished_line_waits_for_its_end(tmp_path: Path):
    path = tmp_path / "a.log"
    path.write_bytes(b"first\nloss is n")
    source = LocalFile(path)
    found, position = look(machine(), ORIGIN, source, START)
    assert (found.hits, position.offset, position.line) == ((), 6, 1)
    with path.open("ab") as file:
        file.write(b"an\n")
    found, position = look(machine(), ORIGIN, source, position)
    assert [(hit.line, hit.offset) for hit in found.hits] == [(2, 6)]
    found, again = look(machine(), ORIGIN, source, position)
    assert (found.hits, found.bytes, again) == ((), 0, position)


@pytest.mark.parametrize("now", [b"loss is nan\n", b"x" * 30 + b"\nloss is nan\n"])
def test_another_log_is_looked_at_from_its_beginning(tmp_path: Path, now: bytes):
    path = tmp_path / "a.log"
    path.write_bytes(b"a line of the log that was here before\n")
    _, position = look(machine(), ORIGIN, LocalFile(path), START)
    path.write_bytes(now)
    found, position = look(machine(), ORIGIN, LocalFile(path), position)
    assert found.counts == {("nan/loss", None): 1}
    assert position.offset == len(now)


def test_a_position_is_plain_values():
    position = Position(offset=5, line=1, mark="ab", carry={"-1": 3.0})
    assert Position(**vars(position)) == position

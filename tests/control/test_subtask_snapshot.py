"""The small document of all processes' states: it proves itself, fits everywhere, and is replaced."""

from __future__ import annotations

import json
import random

import pytest

from airflow_training.control.reports import ProcessReport
from airflow_training.control.subtask_snapshot import (
    STATE_CHECKSUM_MISMATCH,
    SnapshotDamaged,
    read_snapshot,
    resume_processes,
    write_snapshot,
)
from airflow_training.control.subtasks import (
    STATES,
    Subtasks,
    apply_reports,
    new_subtasks,
    rank_states,
)
from tests.builders import restorable

LIMIT = 65_535
"""What Airflow's task state takes; 64 KiB of JSON."""


def anything(seed, *, world, bits):
    """Return processes that have nothing in common."""
    chance = random.Random(seed)
    bitmaps = dict.fromkeys(STATES, 0)
    for rank in range(world):
        bitmaps[chance.choice(STATES)] |= 1 << rank
    return Subtasks(
        world=world,
        generation=99_999_999,
        bitmaps=bitmaps,
        sequences=tuple(10**9 + chance.getrandbits(bits) for _ in range(world)),
        full=(10**18, 10**18 + 1, 10**18 + 2, 10**18 + 3),
        partial={10**18 + 9 + n: chance.getrandbits(world) for n in range(4)},
    )


@pytest.mark.parametrize("world", [1, 2, 7, 8, 9, 64, 1000])
@pytest.mark.parametrize("bits", [0, 1, 18, 40])
def test_what_was_written_is_read_again(world, bits):
    written = anything(world, world=world, bits=bits)
    assert read_snapshot(json.loads(json.dumps(write_snapshot(written)))) == written


def test_it_fits_into_64_kib_whatever_16384_processes_do():
    document = write_snapshot(anything(1, world=16_384, bits=18), environment="sha256:" + "f" * 64)
    assert len(json.dumps(document)) <= LIMIT


def test_it_is_small_where_processes_have_much_in_common():
    same = apply_reports(new_subtasks(16_384, generation=1), [])
    assert len(json.dumps(write_snapshot(same))) < 1000


def _flipped(document, place):
    """Return the document with one bit of its JSON turned over; None where it is no JSON then."""
    text = bytearray(json.dumps(document).encode())
    text[place // 8] ^= 1 << (place % 8)
    try:
        return json.loads(text.decode())
    except ValueError:
        return None


def test_every_flipped_bit_is_found():
    written = anything(3, world=9, bits=5)
    document = write_snapshot(written, environment="sha256:abc")
    for place in range(len(json.dumps(document)) * 8):
        damaged = _flipped(document, place)
        if damaged is not None and isinstance(damaged, dict):
            with pytest.raises(SnapshotDamaged):
                read_snapshot(damaged)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"world": 10}, id="another-world"),
        pytest.param({"world": -1}, id="no-world"),
        pytest.param({"world": 1 << 40}, id="a-world-that-fills-the-memory"),
        pytest.param({"width": 1 << 40}, id="numbers-that-fill-the-memory"),
        pytest.param({"subtasks": "~"}, id="no-base85"),
        pytest.param({"subtasks": None}, id="nothing"),
        pytest.param({"partial": "x"}, id="no-steps"),
        pytest.param({"format": 2}, id="a-format-of-the-future"),
        pytest.param({"more": 1}, id="one-field-more"),
    ],
)
def test_a_document_that_makes_no_sense_is_damaged(change):
    with pytest.raises(SnapshotDamaged):
        read_snapshot({**write_snapshot(anything(3, world=9, bits=5)), **change})


def test_a_missing_field_is_damage():
    document = write_snapshot(anything(3, world=9, bits=5))
    for name in document:
        with pytest.raises(SnapshotDamaged):
            read_snapshot({key: value for key, value in document.items() if key != name})


# going on ---------------------------------------------------------------------------------------------
def _saved(*steps):
    lines = [
        ProcessReport(rank=rank, generation=2, sequence=5, state="SAVED", verified=steps)
        for rank in (0, 1)
    ]
    return apply_reports(new_subtasks(2, generation=2), lines)


def _resumed(document, *, markers):
    return resume_processes(
        document,
        markers=markers,
        generation=2,
        world=2,
        newest_step=30,
        now=9.0,
    )


def test_an_intact_snapshot_is_taken_as_it_is():
    found = _resumed(write_snapshot(_saved(10, 20)), markers={})
    assert (found.subtasks, found.not_after, found.event) == (_saved(10, 20), None, None)


def test_a_damaged_snapshot_is_built_again_from_the_markers():
    damaged = {**write_snapshot(_saved(10, 20)), "generation": 3}
    found = _resumed(damaged, markers={10: [0, 1], 20: [0, 1], 30: [1]})
    assert found.event is not None
    assert found.event.reason == STATE_CHECKSUM_MISMATCH
    assert restorable(found.subtasks) == 20
    assert found.subtasks.partial == {30: 0b10}
    assert rank_states(found.subtasks) == ["PENDING", "PENDING"]
    assert found.not_after is None


def test_without_markers_one_step_earlier_is_used():
    found = _resumed({**write_snapshot(_saved(10, 20)), "sha256": "0" * 64}, markers=None)
    assert found.not_after == 29
    assert restorable(found.subtasks) is None
    assert found.event is not None
    assert "an earlier step is used" in found.event.message

"""A log in pieces tells the same as the whole."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.live.pieces import scan_piece
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import Origin
from tests.examples import examples

NOW = 1_767_225_600.0
FORMATS = formats()


def megatron(step: int) -> bytes:
    return (
        f" [2026-01-01 00:{step // 60:02d}:{step % 60:02d}] iteration {step:8d}/     900 | consumed samples: {step * 32} |"
        f" elapsed time per iteration (ms): 1002.5 | learning rate: 1.000E-04 | lm loss: {9 / step:.6E} |"
        " grad norm: 1.250 | number of skipped iterations: 0 | number of nan iterations: 0 |\n"
    ).encode()


def scanned(
    text: bytes,
    *,
    offset=0,
    done=0,
    complete=False,
    carry=None,
    last_at=0.0,
    begun=NOW,
    now=NOW,
    held=None,
    over=False,
):
    return scan_piece(
        text,
        offset=offset,
        done=done,
        complete=complete,
        carry=carry or {},
        held=held or {},
        over=over,
        last_at=last_at,
        begun=begun,
        now=now,
        formats=FORMATS,
        origin=Origin(file="worker-0"),
    )


def losses(piece) -> list[tuple[int, float]]:
    return [(each.step, round(each.value, 6)) for each in piece.values if each.name == "loss"]


TEXT = b"".join(megatron(step) + b"saved something\n" * (step % 3) for step in range(1, 61))


def test_values_progress_and_times():
    piece = scanned(TEXT + b" iteration 61/ 900 | consu")
    assert piece.done == len(TEXT), "the last line is not complete"
    assert losses(piece) == [(step, round(9 / step, 6)) for step in range(1, 61)]
    assert piece.progress == {
        "step": 60, "total_steps": 900, "samples": 1920, "time": 1_767_225_660.0,
    }  # fmt: skip
    assert not {"step", "total_steps", "consumed_samples"} & {each.name for each in piece.values}
    assert next(each for each in piece.values if each.name == "loss").at == 1_767_225_601.0


RANKS = b"".join(
    b"[rank%d]: %s" % (rank, megatron(step)) for step in range(1, 21) for rank in (3, 1, 2)
)


@pytest.mark.parametrize("text", [TEXT, RANKS], ids=["one rank", "three ranks"])
@settings(max_examples=examples(40), deadline=None)
@given(cuts=st.lists(st.integers(0, len(TEXT)), max_size=12), context=st.integers(0, 2000))
def test_pieces_tell_the_same_as_the_whole(text, cuts, context):
    done, last_at, found = 0, 0.0, []
    carry: Mapping[str, float] = {}
    for end in [*sorted(cuts), len(text)]:
        offset = max(0, done - context)
        offset = 0 if offset == 0 else text.find(b"\n", offset - 1) + 1
        piece = scanned(text[offset:end], offset=offset, done=done, carry=carry, last_at=last_at)
        found += piece.values
        done, last_at, carry = piece.done, piece.last_at, piece.carry
    assert done == len(text)
    assert found == list(scanned(text).values)


def test_lines_without_a_time_get_times_that_grow_up_to_now():
    text = b"".join(b"step: %d loss: %.3f lr: 0.1\n" % (step, 1 / step) for step in range(1, 101))
    first = scanned(text, now=NOW)
    assert len(losses(first)) == 100
    second = scanned(text, offset=len(text), done=len(text), last_at=first.last_at, now=NOW + 10)
    times = [each.at for each in (*first.values, *second.values) if each.name == "loss"]
    assert times == sorted(set(times))
    assert times[0] >= NOW
    assert times[-1] <= NOW + 10 + 1


def test_the_first_lines_without_a_time_were_written_since_the_process_began():
    text = b"".join(b"step: %d loss: %.3f lr: 0.1\n" % (step, 1 / step) for step in range(1, 101))
    times = [each.at for each in scanned(text, begun=NOW - 50).values if each.name == "loss"]
    assert -50 < times[0] - NOW < -49
    assert -1 < times[-1] - NOW <= 0


def test_lines_of_one_second_keep_their_order_and_all_their_values():
    text = b"".join(
        b"2026-01-01 00:00:00 step: %d loss: %.3f lr: 0.1\n" % (step, step) for step in range(20)
    )
    piece = scanned(text)
    times = [each.at for each in piece.values if each.name == "loss"]
    assert len(set(times)) == 20
    assert times == sorted(times)
    assert times[-1] - times[0] < 0.001


def test_a_dict_line_takes_its_step_from_the_bar_of_an_earlier_piece():
    bars = b"".join(
        b"\r %d%%|###   | %d/200 [00:%02d<01:00,  2.00it/s]" % (step // 2, step, step)
        for step in range(1, 31)
    )
    first = scanned(bars)
    assert first.done > len(bars) - 60, "a carriage return ends a bar"
    assert (first.progress["step"], first.progress["total_steps"]) == (29, 200)
    text = bars + b"\n"
    second = scanned(text[first.done :], offset=first.done, done=first.done, carry=first.carry)
    line = b"{'loss': 2.5, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.5}\n"
    third = scanned(line, offset=len(text), done=len(text), carry=second.carry)
    assert losses(third) == [(30, 2.5)]


def test_each_rank_of_a_log_has_its_series_and_the_lowest_tells_the_progress():
    text = b"".join(
        b"[rank%d]: step: %d loss: %d.5 lr: 0.1\n" % (rank, step + rank, rank)
        for step in range(10)
        for rank in (2, 1)
    )
    piece = scanned(text)
    found = [(each.rank, each.step, each.value) for each in piece.values if each.name == "loss"]
    assert found == [(rank, step + rank, rank + 0.5) for step in range(10) for rank in (2, 1)]
    assert piece.progress["step"] == 10


def test_a_flood_is_thinned_and_keeps_its_extremes():
    text = b"".join(
        b"step: %d loss: %s lr: 0.1\n"
        % (step, b"nan" if step == 777 else b"99.5" if step == 1500 else b"0.5")
        for step in range(3000)
    )
    found = losses(scanned(text))
    assert len(found) <= 1000
    assert (1500, 99.5) in found
    assert any(step == 777 and math.isnan(value) for step, value in found)


def test_text_that_says_nothing_costs_nothing():
    piece = scanned(b"hello\nworld\n")
    assert (piece.done, piece.values, piece.progress) == (12, (), {})
    assert scanned(b"no end").done == 0
    assert scanned(b"no end", complete=True).done == 6


# tables ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("context", [0, 40, 10**6])
@pytest.mark.parametrize("cut", [64, 1000])
def test_the_rows_of_a_table_are_read_far_below_its_columns(cut, context):
    rows = [b"%d\t%.4f\t%d\n" % (n, 1 / n, n) + b"saved\n" * (n % 3) for n in range(1, 120)]
    text = b"Step\tTraining Loss\tAccuracy\n" + b"".join(rows) + b"saved\n" * 20 + b"900\t1.5\t3\n"
    carry: dict[str, Any] = {}
    held: dict[str, Any] = {}
    done, last_at, found = 0, 0.0, []
    for end in (*range(cut, len(text), cut), len(text)):
        start = max(0, done - context)
        start = text.rfind(b"\n", 0, start) + 1
        piece = scanned(
            text[start:end], offset=start, done=done, carry=carry, last_at=last_at, held=held
        )
        done, carry, last_at = piece.done, piece.carry, piece.last_at
        held = json.loads(json.dumps(piece.held))
        found += losses(piece)
    assert found == [(n, round(1 / n, 4)) for n in range(1, 120)]
    assert not held


# bare times --------------------------------------------------------------------------------------
STEP_TIMES = [0.31, 0.33, 0.35, 0.34, 0.31, 0.36, 0.30, 0.33]


@pytest.mark.parametrize(
    ("times", "name"),
    [
        pytest.param([10.0 * n for n in range(1, 40)], "time", id="clock"),
        pytest.param(STEP_TIMES * 4, "step_time_seconds", id="steps"),
        pytest.param([0.3, 0.4, 0.5, 0.6, 0.3, 0.2, 0.4], "step_time_seconds", id="grow-at-first"),
        pytest.param([60.0 * n for n in range(1, 7)], "time", id="a-short-clock"),
        pytest.param([7000.0], "time", id="one-that-no-step-takes"),
        pytest.param([0.5], "step_time_seconds", id="one"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
@pytest.mark.parametrize("end", [b"", None], ids=["told-later", "told-with-the-last-lines"])
def test_a_bare_time_is_what_the_whole_log_says_it_is(times, name, size, end):
    lines = [b"step %d loss 0.5 time %g\n" % (10 * n, at) for n, at in enumerate(times, start=1)]
    carry: dict[str, Any] = {}
    held: dict[str, Any] = {}
    done, last_at, found = 0, 0.0, []
    parts = [lines[at : at + size] for at in range(0, len(lines), size)]
    parts += [] if end is None else [[end]]
    for number, part in enumerate(parts, start=1):
        text = b"".join(part)
        piece = scanned(
            text, offset=done, done=done, carry=carry, last_at=last_at, held=json.loads(json.dumps(held)),
            complete=number == len(parts), over=number == len(parts),
        )  # fmt: skip
        done, last_at, carry, held = piece.done, piece.last_at, piece.carry, piece.held
        found += [each for each in piece.values if each.name != "loss"]
    assert {each.name for each in found} == {name}
    assert [each.value for each in found] == times
    assert [each.step for each in found] == [10 * n for n in range(1, len(times) + 1)]
    assert len({each.at for each in found}) == len(times)
    assert not held.get("waiting")


def test_a_time_waits_while_it_may_be_a_clock():
    text = b"".join(b"step %d loss 0.5 time %d\n" % (n, n) for n in range(1, 4))
    piece = scanned(text)
    assert {each.name for each in piece.values} == {"loss"}
    assert len(piece.held["waiting"][""]) == 3


def test_a_line_that_does_not_end_decides_nothing():
    text = b"".join(b"step %d loss 0.5 time %d\n" % (n, n) for n in range(1, 4))
    piece = scanned(text + b"endless", complete=True)
    assert piece.done == len(text) + 7
    assert len(piece.held["waiting"][""]) == 3

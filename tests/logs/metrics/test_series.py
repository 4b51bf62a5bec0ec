"""Rows of lines become series: steps carried over, bars told apart, memory bounded."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_training.logs.metrics.lines import parse_line
from airflow_training.logs.metrics.series import SeriesBuilder
from airflow_training.logs.metrics.thinning import chart_points
from airflow_training.logs.model import Origin
from tests.logs.metrics.values import convert

ORIGIN = Origin(file="train.log")


def feed(builder: SeriesBuilder, lines: list[str], *, first_line: int = 1, offset: int = 0) -> None:
    """Hand lines over one by one, as the engine does with blocks of them."""
    for number, text in enumerate(lines, start=first_line):
        line = text.encode()
        parsed = parse_line(line)
        if parsed is not None:
            row = [
                convert(line[slot.start : slot.end], slot.kind, slot.scale)
                for slot in parsed.slots
                if slot.metric
            ]
            builder.add(
                parsed,
                np.array([row]),
                np.array([offset]),
                np.array([number]),
                np.array([np.nan]),
                np.array([-1]),
            )
        offset += len(line) + 1


def read(lines: list[str]) -> dict[str, list[tuple[float, float]]]:
    builder = SeriesBuilder()
    feed(builder, lines)
    return points(builder)


def points(builder: SeriesBuilder) -> dict[str, list[tuple[float, float]]]:
    return {
        each.metric: list(zip(each.steps.tolist(), each.values.tolist(), strict=True))
        for each in builder.series(ORIGIN)
    }


def bar(step: int, total: int) -> str:
    return f" {100 * step // total}%|#    | {step}/{total} [00:10<03:10,  1.00s/it]"


def test_a_line_without_step_takes_that_of_the_bar_before_it():
    found = read(
        [bar(10, 200), "{'loss': 2.5, 'epoch': 0.25}", bar(20, 200), "{'loss': 1.5, 'epoch': 0.5}"]
    )
    assert found["loss"] == [(10, 2.5), (20, 1.5)]


def test_a_line_before_any_step_has_none():
    [(step, value)] = read(["{'loss': 2.5, 'epoch': 0.25}"])["loss"]
    assert np.isnan(step)
    assert value == 2.5


def test_the_bar_of_an_evaluation_is_no_progress():
    found = read(
        [
            bar(0, 200),
            bar(10, 200),
            bar(0, 13),
            bar(13, 13),
            "{'eval_loss': 1.5, 'epoch': 0.5}",
            bar(11, 200),
        ]
    )
    assert found["step"] == [(0, 0), (10, 10), (11, 11)]
    assert found["total_steps"] == [(0, 200), (10, 200), (11, 200)]
    assert found["eval_loss"] == [(10, 1.5)]


def test_an_evaluation_after_the_last_step_is_known_by_the_bar_that_goes_on():
    lines = [
        bar(0, 20),
        bar(20, 20),
        bar(0, 13),
        bar(13, 13),
        "{'eval_loss': 1.5, 'epoch': 1.0}",
        bar(20, 20),
    ]
    assert read(lines)["eval_loss"] == [(20, 1.5)]


def test_a_log_that_begins_within_an_evaluation_finds_the_training():
    found = read([bar(7, 13), bar(11, 200), "{'loss': 1.5, 'epoch': 1.0}", bar(12, 200)])
    assert found["loss"] == [(11, 1.5)]
    assert found["total_steps"] == [(11, 200), (12, 200)]


def test_bars_after_each_other_all_count():
    assert [step for step, _ in read([bar(0, 5), bar(5, 5), bar(0, 7), bar(7, 7)])["step"]] == [
        0,
        5,
        0,
        7,
    ]


def test_lines_of_an_unknown_layout_count_when_they_repeat_with_growing_steps():
    line = '{{"step": {}, "gain": 0.5}}'
    assert read([line.format(1)]) == {}
    assert read([line.format(3), line.format(3)]) == {}
    assert read([line.format(1), line.format(2)])["gain"] == [(1, 0.5), (2, 0.5)]


def test_blocks_that_repeat_are_series_with_the_step_of_their_head():
    block = [
        "Learning iteration {}/90",
        "Mean reward: {}",
        "Value function loss: {}.5",
        "Penalty scale: 3",
    ]
    found = read([line.format(n) for n in (1, 2) for line in block])
    assert found == {
        "step": [(1, 1), (2, 2)],
        "total_steps": [(1, 90), (2, 90)],
        "mean reward": [(1, 1), (2, 2)],
        "value function loss": [(1, 1.5), (2, 2.5)],
    }
    assert read([line.format(1) for line in block]) == {}


def test_rows_of_a_table_that_is_printed_again_with_other_numbers_are_series():
    table = ["| fps         | {} |", "| clip_range  | 0.2 |", "| value_loss  | {}.5 |"]
    found = read([row.format(n) for n in (7, 8) for row in table])
    assert {metric: [value for _, value in points] for metric, points in found.items()} == {
        "fps": [7, 8],
        "value_loss": [7.5, 8.5],
    }
    once = read([row.format(7) for row in table])
    assert set(once) == {"fps", "clip_range", "value_loss"}, (
        "a loss tells what the rows beside it are"
    )
    assert read([row.format(7) for row in table[:2]]) == {}


LINES = st.lists(
    st.one_of(
        st.tuples(st.integers(1, 30), st.sampled_from([30])).map(lambda pair: bar(*pair)),
        st.integers(0, 99).map(lambda n: f"{{'loss': {n}, 'epoch': 0.5}}"),
        st.integers(0, 99).map(lambda n: f"step: {n}  loss: {n / 8}  memory: 1.0GiB(1%)"),
        st.integers(0, 99).map(lambda n: f'{{"step": {n}, "reward": {n}}}'),
        st.just("nothing here"),
    ),
    max_size=40,
)


@given(lines=LINES, cuts=st.lists(st.integers(0, 40), max_size=3))
@settings(deadline=None)
def test_pieces_give_what_the_whole_gives(lines, cuts):
    whole = SeriesBuilder()
    feed(whole, lines)
    borders = [0, *sorted(min(cut, len(lines)) for cut in cuts), len(lines)]
    joined = SeriesBuilder()
    offset = 0
    for start, end in pairwise(borders):
        piece = SeriesBuilder()
        feed(piece, lines[start:end], offset=offset)
        joined.merge(pickle.loads(pickle.dumps(piece)), lines_before=start)
        offset += sum(len(line) + 1 for line in lines[start:end])
    expected, found = whole.series(ORIGIN), joined.series(ORIGIN)
    assert [each.metric for each in found] == [each.metric for each in expected]
    for one, other in zip(found, expected, strict=True):
        for field in ("steps", "values", "offsets", "lines"):
            np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert one.total == other.total


def long_builder(values: np.ndarray, *, exact: int, start: int = 0) -> SeriesBuilder:
    layout = parse_line(b"step: 10  loss: 2.5  memory: 1.0GiB(1%)")
    assert layout is not None
    builder = SeriesBuilder(exact=exact)
    for at in range(0, values.size, 500):
        part = values[at : at + 500]
        order = np.arange(start + at, start + at + part.size)
        rows = np.stack([order, part, np.ones(part.size)], axis=1).astype(float)
        unknown = np.full(part.size, np.nan)
        builder.add(layout, rows, order * 100, order + 1, unknown, np.full(part.size, -1))
    return builder


def test_a_long_series_keeps_ends_extremes_and_what_is_no_number():
    values = np.random.default_rng(7).normal(size=40_000)
    values[12_345], values[23_456], values[30_001] = 99.0, -99.0, np.nan
    [loss] = [s for s in long_builder(values, exact=2_000).series(ORIGIN) if s.metric == "loss"]
    assert loss.total == 40_000
    assert loss.values.size < 4_500
    at = dict(zip(loss.steps.tolist(), loss.values.tolist(), strict=True))
    assert (at[0], at[12_345], at[23_456], at[39_999]) == (values[0], 99.0, -99.0, values[-1])
    assert np.isnan(at[30_001])
    assert (np.diff(loss.steps) < 2_000).all()


def test_a_series_that_is_not_long_keeps_every_point():
    values = np.random.default_rng(7).normal(size=2_000)
    [loss] = [s for s in long_builder(values, exact=2_000).series(ORIGIN) if s.metric == "loss"]
    np.testing.assert_array_equal(loss.values, values)


def test_long_pieces_join_without_losing_extremes():
    values = np.random.default_rng(7).normal(size=30_000)
    values[[100, 14_000, 29_000]] = 50.0, -50.0, 60.0
    joined = SeriesBuilder(exact=1_000)
    for start in range(0, values.size, 10_000):
        joined.merge(long_builder(values[start : start + 10_000], exact=1_000, start=start))
    [loss] = [s for s in joined.series(ORIGIN) if s.metric == "loss"]
    assert loss.total == 30_000
    assert loss.values.size < 3_500
    assert {50.0, -50.0, 60.0} <= set(loss.values.tolist())
    assert (np.diff(loss.offsets) > 0).all()


def test_long_pieces_without_steps_join_without_gaps():
    layout = parse_line(b"{'loss': 2.5, 'epoch': 0.25}")
    assert layout is not None
    joined = SeriesBuilder(exact=1_000)
    for start in range(0, 30_000, 10_000):
        piece = SeriesBuilder(exact=1_000)
        for at in range(start, start + 10_000, 500):
            order = np.arange(at, at + 500)
            unknown = np.full(500, np.nan)
            rows = np.stack([order % 7, order], axis=1).astype(float)
            piece.add(layout, rows, order * 100, order + 1, unknown, np.full(500, -1))
        joined.merge(piece)
    [epoch] = [s for s in joined.series(ORIGIN) if s.metric == "epoch"]
    assert epoch.total == 30_000
    assert epoch.values.size < 2_000
    assert np.diff(epoch.values, prepend=0, append=30_000).max() < 1_000


def test_pieces_that_come_one_after_another_do_not_add_up_to_more_memory():
    joined = SeriesBuilder(exact=1_000)
    for start in range(0, 60_000, 2_500):
        values = np.random.default_rng(start).normal(size=2_500)
        joined.merge(long_builder(values, exact=1_000, start=start))
    [loss] = [s for s in joined.series(ORIGIN) if s.metric == "loss"]
    assert loss.total == 60_000
    assert loss.values.size < 1_000


@pytest.mark.parametrize("size", [10, 1_000, 54_321])
def test_a_chart_keeps_every_peak(size):
    values = np.random.default_rng(1).normal(size=size)
    values[size // 3] = 77.0
    which = chart_points(values, 400)
    assert which.size <= max(400, 10)
    assert 77.0 in values[which]
    assert which[0] == 0
    assert which[-1] == size - 1

"""The fast ways give exactly what the slow one gives, on any bytes."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from airflow_training.logs.engine.automaton import (
    WORTH_COMPILING,
    Automaton,
    Hyperscan,
    LiteralAutomaton,
    Re2,
)
from airflow_training.logs.engine.patterns import Pattern
from airflow_training.logs.engine.scanning import BLOCK_BYTES, Machine
from airflow_training.logs.engine.stretches import as_scan, scan_stretch
from airflow_training.logs.engine.walking import PlainWalker, Walker
from airflow_training.logs.metrics import formats
from airflow_training.logs.model import FileScan, Origin, Series
from tests.examples import examples
from tests.logs.engine import reference
from tests.logs.engine.sources import Dribble
from tests.logs.engine.text import SIGNATURES, logs

ORIGIN = Origin(file="x", rank=5)
FORMATS = formats()
FIXTURES = Path(__file__).parent.parent


def automaton(name: str) -> Automaton:
    if name == "hyperscan":
        pytest.importorskip("hyperscan")
        return Hyperscan(SIGNATURES, FORMATS.anchors())
    if name == "re2":
        return Re2(SIGNATURES, FORMATS.anchors())
    return LiteralAutomaton(SIGNATURES, FORMATS.anchors())


def walker(name: str) -> Walker:
    if name == "plain":
        return PlainWalker()
    pytest.importorskip("numba")
    from airflow_training.logs.engine.compiled_walker import CompiledWalker

    return CompiledWalker(SIGNATURES, size=BLOCK_BYTES)


def fast(data: bytes, sizes: list[int], *, automaton: Automaton, walker: Walker) -> FileScan:
    walker.forget()
    machine = Machine(SIGNATURES, FORMATS, automaton=automaton, walker=walker)
    found = scan_stretch(machine, ORIGIN, Dribble(data, sizes), 0, None)
    assert found.tail is not None
    return as_scan(ORIGIN, found, found.tail)


def assert_same(found: FileScan, expected: FileScan) -> None:
    assert found.hits == expected.hits
    assert found.counts == expected.counts
    assert (found.bytes, found.lines) == (expected.bytes, expected.lines)
    ours, theirs = (
        {(each.metric, each.scope, each.rank): each for each in scan.series}
        for scan in (found, expected)
    )
    assert ours.keys() == theirs.keys()
    for key, series in ours.items():
        for name in [field.name for field in fields(Series)]:
            a, b = getattr(series, name), getattr(theirs[key], name)
            if isinstance(a, np.ndarray):
                assert a.tobytes() == b.tobytes(), (key, name, a, b)
            else:
                assert a == b, (key, name)


@pytest.mark.parametrize(
    ("matching", "walking"),
    [
        ("plain", "plain"),
        ("re2", "plain"),
        ("hyperscan", "plain"),
        ("hyperscan", "compiled"),
    ],
)
def test_any_log_in_any_pieces(matching, walking):
    matcher, taker = automaton(matching), walker(walking)

    @settings(
        max_examples=examples(60),
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(
        data=logs,
        sizes=st.lists(st.sampled_from([1, 7, 100, 1000, 65_536, 1 << 20]), min_size=1, max_size=5),
    )
    def check(data: bytes, sizes: list[int]) -> None:
        if min(sizes) == 1 and len(data) > 3000:
            sizes = [max(size, 100) for size in sizes]
        data = data + data
        expected = reference.scan(data, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
        assert_same(fast(data, sizes, automaton=matcher, walker=taker), expected)

    check()


def test_a_text_that_healthy_logs_are_full_of_brings_its_signature_where_that_matches():
    pytest.importorskip("hyperscan")
    matcher = Hyperscan([Pattern(name="lost", pattern=r"checkpoint \d+ is lost")], [])
    healthy, lost = bytearray(b"checkpoint 1 is safe\n"), bytearray(b"checkpoint 2 is lost\n")
    for _ in range(WORTH_COMPILING):
        matcher.candidates(healthy, anchors=False)
    assert matcher.candidates(healthy, anchors=False).signatures == []
    assert matcher.candidates(lost, anchors=False).signatures == [0]


@pytest.mark.parametrize("walking", ["plain", "compiled"])
def test_a_colour_may_begin_inside_a_time_or_a_rank(walking):
    line = b"20\x1b[31m22-09-24 15:05:44,301 - INFO - Epoch [1][40/395] lr: 1.0e-05, loss: 1.5\n"
    ranked = b"[rank1\x1b[31m2]: step: 3 loss: 0.5\n"
    data = line + ranked
    expected = reference.scan(data, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
    assert {series.rank for series in expected.series} == {ORIGIN.rank, 12}
    found = fast(data, [1 << 20], automaton=automaton("plain"), walker=walker(walking))
    assert_same(found, expected)


@pytest.mark.parametrize("walking", ["plain", "compiled"])
def test_a_number_that_was_damaged_once_does_not_hide_the_next(walking):
    lines = b'{"epoch": 5, "iter": 12, "loss": 0.9409.0, "time": 6.7}\n'
    lines += b'{"epoch": 5, "iter": 13, "loss": 0.94091, "time": 6.7}\n'
    expected = reference.scan(lines, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
    assert [one.values.tolist() for one in expected.series if one.metric == "loss"] == [[0.94091]]
    found = fast(lines, [1 << 20], automaton=automaton("plain"), walker=walker(walking))
    assert_same(found, expected)


@pytest.mark.parametrize("walking", ["plain", "compiled"])
def test_a_date_that_was_damaged_once_does_not_hide_the_next(walking):
    end = b": step 670, loss = 2.86 (721.8 examples/sec; 0.177 sec/batch)\n"
    lines = b"2017-03-2872 14:51:06.1" + end + b"2017-03-28 14:51:07.1" + end
    expected = reference.scan(lines, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
    assert [np.isnan(one.times).tolist() for one in expected.series] == [[True, False]] * 4
    found = fast(lines, [1 << 20], automaton=automaton("plain"), walker=walker(walking))
    assert_same(found, expected)


@pytest.mark.parametrize("walking", ["plain", "compiled"])
def test_a_bar_whose_times_are_damaged_is_no_bar(walking):
    bar = b" 33%%|###   | 200/600 [01:11<%s01:58,  3.37it/s]\n"
    data = bar % b"" + bar % b","
    expected = reference.scan(data, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
    assert {one.total for one in expected.series} == {1}
    found = fast(data, [1 << 20], automaton=automaton("plain"), walker=walker(walking))
    assert_same(found, expected)


BAR = b"Epoch 0:  97% 1652/1702 [13:01<00:23,  2.11it/s, loss=0.158]"


@pytest.mark.parametrize("walking", ["plain", "compiled"])
@pytest.mark.parametrize(
    ("learned", "other"),
    [
        pytest.param(b"step 30 loss 1.9", b"step 1e9 loss 1.9", id="a-step-has-no-exponent"),
        pytest.param(
            b"iteration 20/50 | loss 8.8 | time 1.2",
            b"iteration 20/5e9 | loss 8.8 | time 1.2",
            id="a-total-has-no-exponent",
        ),
        pytest.param(
            b"step 5 loss 0.5 3.0 it/s", b"step 5 loss 0.5 -3 it/s", id="a-rate-has-no-sign"
        ),
        pytest.param(b"Epoch 1/30", b"Epoch 1/30.5", id="digits-of-a-format"),
        pytest.param(b"  epoch 8", b"  epoch          28", id="spaces-of-a-format"),
        pytest.param(BAR, BAR.replace(b"97%", b"9.7e-7%"), id="a-share-has-no-exponent"),
        pytest.param(
            BAR.replace(b"]", b", lr=1e-50.0074]"),
            BAR.replace(b"]", b", lr=1e-5]"),
            id="no-number-begins-in-an-exponent",
        ),
        pytest.param(
            b"2024-0998.8307-01 10:05:20 step 13 loss 1.0",
            b"2024-01-01 10:05:30 step 14 loss 0.9",
            id="a-date-with-more-digits",
        ),
        pytest.param(
            b"1:40.3114642024-12-25 00:30:09.574858: train_loss 0.5",
            b"2024-04-26 09:41:39.493872: train_loss 0.7",
            id="a-date-behind-other-digits",
        ),
        pytest.param(
            b"24-04-26 09:39:10.914042: Current learning rate: 0.01",
            b"2024-04-26 09:39:11.914042: Current learning rate: 0.01\n"
            b"2024-04-26 09:39:12.914042: Current learning rate: 0.02",
            id="a-date-of-a-line-without-metrics",
        ),
        pytest.param(
            b"[rank1234567]: step 5 loss: 2.0",
            b"[rank4]: step 6 loss: 1.9",
            id="a-rank-with-more-digits",
        ),
        pytest.param(
            b"step: 5, loss: 1.5, rank: 3.5",
            b"step: 6, loss: 1.5, rank: 3",
            id="a-rank-that-is-none",
        ),
        pytest.param(
            b"step: 5, loss: 1.5, rank: 3",
            b"step: 6, loss: 1.5, rank: 99999999999999999999",
            id="a-rank-of-any-size",
        ),
        pytest.param(
            b"step 5 loss: 2.0 3  val acc: 0.5",
            b"step 6 loss: 2.0 3 val acc: 0.6",
            id="two-spaces-begin-a-name",
        ),
        pytest.param(
            b"epoch 1 (10 steps) loss (avg of 5): 0.5, accuracy: 0.5",
            b"epoch 2 (10 steps) loss (avg of 7): 0.4, accuracy: 0.6",
            id="a-digit-in-a-name",
        ),
        pytest.param(b"loss: 1,2345", b"loss: 1,234", id="groups-of-three-digits"),
        pytest.param(
            b"Validation loss 8416:  0.71", b"Validation loss 8416:0", id="no-space-between-numbers"
        ),
    ],
)
def test_a_layout_takes_only_lines_that_mean_the_same(walking, learned, other):
    for data in (learned, other), (other, learned):
        before, line = data
        log = (before + b"\n") * 3 + line + b"\n"
        expected = reference.scan(log, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
        pieces = [3 * len(before) + 3, 1 << 20]
        found = fast(log, pieces, automaton=automaton("plain"), walker=walker(walking))
        assert_same(found, expected)


@pytest.mark.parametrize("walking", ["plain", "compiled"])
def test_a_step_below_a_colour_is_no_rank(walking):
    data = b"87:     learn: 0.9540 \x1b[31mtest: 0.5\x1b[0m\n" * 3
    expected = reference.scan(data, signatures=SIGNATURES, formats=FORMATS, origin=ORIGIN)
    assert {one.rank for one in expected.series} == {ORIGIN.rank}
    found = fast(data, [1 << 20], automaton=automaton("plain"), walker=walker(walking))
    assert_same(found, expected)

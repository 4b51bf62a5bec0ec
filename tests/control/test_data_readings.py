"""Rates and stalls of reading, from reports as they come."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from airflow_training.control.data_readings import DataReading, follow_reading, rate_of, stall_limit
from airflow_training.control.reports import FilesReport, ProgressReport

NOW = 1_000_000.0


def said(at: float, *, read: float | None = None, **fields: Any) -> ProgressReport:
    files = None if read is None else FilesReport(read=read, known=1, done=0)
    return ProgressReport(time=at, files=files, **fields)


def follow(reports: Iterable[ProgressReport]) -> DataReading:
    reading = None
    for each in reports:
        reading = follow_reading(reading, each, now=NOW)
    assert reading is not None
    return reading


def steady(until: int, *, every: float = 1.0, begin: int = 0) -> list[ProgressReport]:
    return [said(i * every, step=i, samples=10 * i, read=100.0 * i) for i in range(begin, until)]


def test_who_tells_of_steps_only_has_read_nothing():
    assert follow_reading(None, ProgressReport(step=3, metrics={"loss": 1.0}), now=NOW) is None


def test_a_report_without_a_time_counts_when_it_came():
    assert follow([ProgressReport(samples=3)]).since == NOW


@pytest.mark.parametrize("every", [0.1, 1.0, 60.0])
def test_rates_are_those_of_the_newest_reports(every):
    reading = follow(steady(100, every=every))
    assert rate_of(reading.points, "samples") == pytest.approx(10 / every)
    assert rate_of(reading.points, "read") == pytest.approx(100 / every)


def test_one_report_has_no_rate():
    assert rate_of(follow(steady(1)).points, "samples") is None
    assert rate_of(follow([said(0, read=1), said(5, read=2)]).points, "samples") is None


def test_what_is_kept_is_bounded():
    reading = follow(
        [*steady(500, every=3), *(r for i in range(60) for r in steady(3, every=1000))]
    )
    assert len(reading.points) <= 24
    long = [said(i * 1.0 + 100 * (i // 50), step=i, samples=i) for i in range(5000)]
    stalled = follow(long)
    assert (len(stalled.stalls), stalled.stall_count) == (20, 99)
    assert stalled.stall_seconds == pytest.approx(99 * 101)


def test_a_long_time_in_which_nothing_moved_is_a_stall():
    reading = follow([*steady(10), *(said(each, step=9, read=900.0) for each in (20, 40, 60)), said(70, step=10)])  # fmt: skip
    (stall,) = reading.stalls
    assert (stall.started_at, stall.seconds, stall.step) == (9, 61, 9)
    assert (reading.stall_count, reading.stall_seconds, reading.since) == (1, 61, 70)


@pytest.mark.parametrize(
    "between",
    [
        pytest.param([said(20, step=9, read=950.0)], id="it-reads"),
        pytest.param([said(20, step=10)], id="it-steps"),
        pytest.param([said(20, samples=91)], id="it-counts-samples"),
        pytest.param([said(10, step=9, section="eval"), said(39, step=9)], id="it-evaluates"),
    ],
)
def test_who_reads_or_steps_meanwhile_does_not_stall(between):
    assert follow([*steady(10), *between, said(45, step=11)]).stalls == ()


def test_a_script_that_reports_seldom_is_no_slower_for_it():
    assert stall_limit(follow(steady(10, every=60)).points) == 300
    assert follow([*steady(10, every=60), said(800, step=11)]).stalls == ()
    assert follow([*steady(10, every=60), said(900, step=11)]).stall_count == 1


def test_nobody_knows_how_often_a_script_reports_before_it_has_three_times():
    assert follow([*steady(2), said(500, step=3)]).stalls == ()


def test_another_attempt_begins_without_a_stall():
    reading = follow([*steady(10), *[said(300 + i, step=5 + i, samples=50) for i in range(3)]])
    assert reading.stalls == ()
    assert (reading.points[0].at, reading.since) == (300, 302)


def test_the_end_is_no_stall():
    assert follow([*steady(10), said(300, step=10, total_steps=10)]).stalls == ()

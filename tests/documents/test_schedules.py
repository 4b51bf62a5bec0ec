"""Cron expressions, time zones, and the moments they name."""

from __future__ import annotations

import zoneinfo
from datetime import datetime, timezone
from zoneinfo import ZoneInfo

import pytest

from airflow_training.documents.schedules import (
    cron_mistake,
    next_starts,
    uneven_step,
    zone_mistake,
)
from tests.documents.documents import edited, only_problem, parsed

CHICAGO = ZoneInfo("America/Chicago")


@pytest.mark.parametrize(
    ("cron", "message", "hint"),
    [
        ("0 25 * * *", "hour cannot be '25': it is 0 to 23", "'25 0 * * *'"),
        ("0 24 * * *", "hour cannot be '24': it is 0 to 23", "did you mean '0 0 * * *'?"),
        ("60 3 * * *", "minute cannot be '60': it is 0 to 59", "did you mean '0 3 * * *'?"),
        ("75 30 * * *", "minute cannot be '75': it is 0 to 59", ""),
        ("H 3 * * *", "'H' is of Jenkins", "'17 3 * * *'"),
        ("H(0-29) H/6 * * *", "'H' is of Jenkins", "'0 */6 * * *'"),
        ("H/15 H(2-4) * * H", "'H' is of Jenkins", "'*/15 2 * * 1'"),
        ("H(0-29)/10 * * * *", "'H' is of Jenkins", "'0-29/10 * * * *'"),
        ("0 3 * *", "has 4 fields, and takes five: minute, hour,", ""),
        ("0 0 3 * * *", "has 6 fields: a second is not for Airflow", "did you mean '0 3 * * *'?"),
        ("0 0 1 1 1 1", "has 6 fields: a second is not for Airflow", "did you mean '0 1 1 1 1'?"),
        ("0 0 3 ? * MON-FRI", "has 6 fields", "did you mean '0 3 ? * MON-FRI'?"),
        ("0 3 * * MON-FRI 30", "has 6 fields", "did you mean '0 3 * * MON-FRI'?"),
        ("0 3 * * 1 2026", "a second or a year is not for Airflow", "did you mean '0 3 * * 1'?"),
        ("0 0 3 * * ? 2026", "has 7 fields: a second or a year", "did you mean '0 3 * * ?'?"),
        ("0 0 3 ? * MON-FRI *", "has 7 fields", "did you mean '0 3 ? * MON-FRI'?"),
        ("0 0 99 * * 1", "has 6 fields", ""),
        ("@every 15m", "'@every' is none of Airflow's presets", "did you mean '*/15 * * * *'?"),
        ("@every 6h", "'@every' is none", "did you mean '0 */6 * * *'?"),
        ("@every 24h", "'@every' is none", "did you mean '0 0 * * *'?"),
        ("@every 7m", "'@every' is none", "names the times: '*/15 * * * *'"),
        ("@annually", "'@annually' is none", "did you mean '@yearly'?"),
        ("@midnight", "'@midnight' is none", "did you mean '@daily'?"),
        ("@reboot", "'@reboot' is none", "'@once' runs once"),
        ("@dayly", "'@dayly' is none", "did you mean '@daily'?"),
        ("0 3 32 * *", "day of the month cannot be '32'", ""),
        ("0 3 * 13 *", "month cannot be '13': it is 1 to 12", ""),
        ("0 3 * * 8", "day of the week cannot be '8': it is 0 to 7", ""),
        ("0 3 * * * 60", "has 6 fields: a second", "did you mean '0 3 * * *'?"),
        ("*/0 * * * *", "minute cannot be '*/0'", ""),
        ("0 3 31 2 *", "a date that never comes", "'0 3 L 2 *'"),
        ("0 3 31 4,6 *", "a date that never comes", "'0 3 L 4,6 *'"),
        ("0 3 29 2 MON#1", "a date that never comes", "'0 3 L 2 MON#1'"),
        ("0 3 30,31 2 *", "a date that never comes", ""),
    ],
)
def test_a_cron_expression_that_airflow_cannot_follow(cron, message, hint):
    problem = only_problem(edited("spec.dag", {"schedule": cron}))
    assert (problem.code, problem.field) == ("not_allowed", "spec.dag.schedule")
    assert problem.value == cron
    assert message in problem.message
    assert problem.hint.endswith(hint)
    assert bool(problem.hint) == bool(hint)
    assert problem.line is not None


@pytest.mark.parametrize(
    "cron",
    [
        "0 3 29 2 *",  # every fourth year
        "0 3 29 2 MON#5",  # every 28 years
        "0 3 30 2 MON",  # on Mondays
        "0 3 L * *",
        "0 3 * * 7",
        "0 3 * * MON-FRI",
    ],
)
def test_a_date_that_comes_seldom_is_no_mistake(cron):
    assert cron_mistake(cron) is None


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("America/chicago", "did you mean 'America/Chicago'?"),
        ("Amerca/Chicago", "did you mean 'America/Chicago'?"),
        ("Chicago", "did you mean 'America/Chicago'?"),
        ("New York", "did you mean 'America/New_York'?"),
        ("utc", "did you mean 'UTC'?"),
        ("CST", ""),
        ("../etc/passwd", ""),
        ("America", ""),
    ],
)
def test_a_zone_that_nobody_knows(zone, hint):
    problem = only_problem(edited("spec.dag", {"timezone": zone}))
    assert (problem.code, problem.field) == ("not_allowed", "spec.dag.timezone")
    assert (problem.value, problem.hint) == (zone, hint)
    assert "IANA" in problem.message
    assert problem.line is not None


@pytest.mark.parametrize("date", ["0001-01-01", "1969-12-31", "3000-01-01", "9999-12-31T23:00:00"])
def test_a_start_date_that_no_clock_shows(date):
    problem = only_problem(edited("spec.dag", {"schedule": "0 3 * * *", "startDate": date}))
    assert (problem.code, problem.field) == ("not_allowed", "spec.dag.startDate")
    assert "1970 to 2999" in problem.message


@pytest.mark.parametrize("zone", ["America/Chicago", "Asia/Kolkata", "UTC", "Etc/GMT+6"])
def test_a_machine_without_a_database_of_zones_knows_them_too(zone):
    zoneinfo.reset_tzpath(())
    try:
        assert zone_mistake(zone) is None
        assert zone_mistake("Nowhere") is not None
        assert ZoneInfo.no_cache(zone).key == zone
    finally:
        zoneinfo.reset_tzpath()


@pytest.mark.parametrize(
    ("dag", "warned"),
    [
        ({"schedule": "0 3 * * *", "startDate": "2026-01-01T00:00:00-06:00"}, True),
        ({"schedule": "@daily", "startDate": "2026-01-01T00:00:00+05:30"}, True),
        ({"schedule": "0 3 * * *", "startDate": "2026-01-01T00:00:00Z"}, False),
        ({"schedule": "0 3 * * *", "startDate": "2026-01-01T00:00:00+00:00"}, False),
        ({"schedule": "0 3 * * *", "startDate": "2026-01-01"}, False),
        ({"schedule": "@once", "startDate": "2026-01-01T00:00:00-06:00"}, False),
        ({"schedule": "@continuous", "startDate": "2026-01-01T00:00:00-06:00"}, False),
        ({"schedule": {"assets": ["a"]}, "startDate": "2026-01-01T00:00:00-06:00"}, False),
        ({"startDate": "2026-01-01T00:00:00-06:00"}, False),
        (
            {
                "schedule": "0 3 * * *",
                "startDate": "2026-01-01T00:00:00-06:00",
                "timezone": "America/Chicago",
            },
            False,
        ),
    ],
)
def test_an_offset_beside_a_cron_expression_is_warned_of(dag, warned):
    document = parsed(edited("spec.dag", dag))
    assert document.problems == []
    assert [(each.field, each.value) for each in document.warnings] == (
        [("spec.dag.startDate", dag["startDate"])] if warned else []
    )
    for each in document.warnings:
        assert "does not follow the clocks" in each.message
        assert "timezone" in each.hint
        assert each.line is not None


def test_the_next_starts_are_by_the_clock_of_the_zone():
    after = datetime(2026, 3, 6, 12, tzinfo=timezone.utc)
    starts = next_starts("30 6 * * *", CHICAGO, after=after, count=3)
    assert [each.isoformat() for each in starts] == [
        "2026-03-06T06:30:00-06:00",
        "2026-03-07T06:30:00-06:00",
        "2026-03-08T06:30:00-05:00",  # the clocks were set in the night
    ]


@pytest.mark.parametrize(
    ("zone", "hint"),
    [
        ("Chicago", "did you mean 'America/Chicago'?"),
        ("UTC+2", "'Etc/GMT-2' is that offset all year; the name of a place follows its clocks, as Europe/Paris"),
        ("+05:30", "the name of a place follows its clocks, as Europe/Paris"),
        ("GMT-03:00", "'Etc/GMT+3' is that offset all year; the name of a place follows its clocks, as Europe/Paris"),
        ("UTC2", ""),
    ],
)  # fmt: skip
def test_no_hint_for_a_zone_shifts_the_schedule(zone: str, hint: str):
    found = zone_mistake(zone)
    assert found is not None
    assert found[1] == hint


@pytest.mark.parametrize(
    ("cron", "said"),
    [
        ("*/90 * * * *", "'*/90' is minute 0 of each hour, not every 90 minutes"),
        ("*/45 * * * *", "'*/45' is minute 0 and 45 of each hour, not every 45 minutes"),
        ("0 */10 * * *", "'*/10' is hour 0, 10 and 20 of each day, not every 10 hours"),
        ("*/15 */6 * * *", ""),
        ("30 2 */2 * *", ""),
        ("5-50/15 * * * *", ""),
    ],
)
def test_a_step_that_does_not_come_evenly_is_told(cron: str, said: str):
    assert uneven_step(cron) == said

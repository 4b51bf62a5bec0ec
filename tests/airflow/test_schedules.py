"""Schedules as Airflow's timetables follow them, above all when the clocks change."""

from __future__ import annotations

import datetime as dt
from typing import Any
from zoneinfo import ZoneInfo

import pendulum
import pytest
from airflow.timetables.base import DagRunInfo, TimeRestriction

from airflow_training import job_to_dag
from airflow_training.documents.schedules import cron_of, next_starts
from tests.airflow.jobs import job
from tests.airflow.shapes import round_trip

CHICAGO = "America/Chicago"
INTERVALS = "AIRFLOW__SCHEDULER__CREATE_CRON_DATA_INTERVALS"


def starts(schedule: str, zone: str, *, first: dt.datetime, count: int) -> list[dt.datetime]:
    """Return when Airflow's scheduler starts the runs of a job, the oldest first."""
    document = job(dag={"schedule": schedule, "timezone": zone})
    timetable: Any = round_trip(job_to_dag(document)).timetable
    between = TimeRestriction(pendulum.instance(first), None, catchup=True)
    told: list[dt.datetime] = []
    last: DagRunInfo | None = None
    for _ in range(count):
        last = timetable.next_dagrun_info_v2(last_dagrun_info=last, restriction=between)
        assert last is not None
        told.append(last.run_after.astimezone(ZoneInfo(zone)))
    return told


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ("30 2 * * *", ["08 03:30 CDT", "09 02:30 CDT"]),
        ("30 1 * * *", ["08 01:30 CST", "09 01:30 CDT"]),
        ("0 * * * *", ["07 23:00 CST", "08 00:00 CST", "08 01:00 CST", "08 03:00 CDT"]),
        ("0 */2 * * *", ["08 00:00 CST", "08 03:00 CDT", "08 04:00 CDT"]),
    ],
)
def test_the_clocks_are_set_forward(schedule, shown):
    first = dt.datetime(2026, 3, 7, 23, tzinfo=ZoneInfo(CHICAGO))
    told = starts(schedule, CHICAGO, first=first, count=len(shown))
    assert [each.strftime("%d %H:%M %Z") for each in told] == shown


@pytest.mark.parametrize(
    ("schedule", "shown"),
    [
        ("30 2 * * *", ["01 02:30 CST", "02 02:30 CST"]),
        ("30 1 * * *", ["01 01:30 CST", "02 01:30 CST"]),
        ("0 * * * *", ["01 00:00 CDT", "01 01:00 CDT", "01 01:00 CST", "01 02:00 CST"]),
        ("0 */2 * * *", ["01 00:00 CDT", "01 02:00 CST", "01 04:00 CST"]),
    ],
)
def test_the_clocks_are_set_back(schedule, shown):
    first = dt.datetime(2026, 11, 1, tzinfo=ZoneInfo(CHICAGO))
    told = starts(schedule, CHICAGO, first=first, count=len(shown))
    assert [each.strftime("%d %H:%M %Z") for each in told] == shown


@pytest.mark.parametrize(
    ("zone", "day"),
    [  # before a change of the clocks, by half an hour in Lord Howe
        (CHICAGO, "2026-03-07"),
        (CHICAGO, "2026-10-31"),
        ("Europe/Berlin", "2026-03-28"),
        ("Europe/Berlin", "2026-10-24"),
        ("Australia/Lord_Howe", "2026-04-04"),
        ("Australia/Lord_Howe", "2026-10-03"),
    ],
)
@pytest.mark.parametrize(
    "cron",
    [
        "30 2 * * *",
        "15 1,2 * * *",
        "*/20 * * * *",
        "45 */3 * * *",
        "0 0 L * *",
        "@daily",
        "@hourly",
    ],
)
def test_explain_tells_the_starts_of_airflow(cron, zone, day):
    first = dt.datetime.fromisoformat(day).replace(hour=12, tzinfo=ZoneInfo(zone))
    known = starts(cron, zone, first=first, count=60)
    just_before = first - dt.timedelta(microseconds=1)
    told = next_starts(cron_of(cron), ZoneInfo(zone), after=just_before, count=60)
    assert [each.timestamp() for each in told] == [each.timestamp() for each in known]


@pytest.mark.parametrize("schedule", ["0 3 * * 1", "@daily"])
@pytest.mark.parametrize(
    ("intervals", "kind"),
    [("False", "CronTriggerTimetable"), ("True", "CronDataIntervalTimetable")],
)
def test_the_kind_of_timetable_is_that_of_the_configuration(monkeypatch, schedule, intervals, kind):
    monkeypatch.setenv(INTERVALS, intervals)
    kinds = []
    for zone in ({}, {"timezone": CHICAGO}):
        timetable: Any = round_trip(job_to_dag(job(dag={"schedule": schedule, **zone}))).timetable
        kinds.append(type(timetable).__name__)
    assert kinds == [kind, kind]


@pytest.mark.parametrize("zone", ["America/Chicago", None])
@pytest.mark.parametrize("schedule", ["@once", "@continuous", None, {"assets": ["s3://a/x"]}])
def test_a_zone_leaves_other_schedules_alone(schedule, zone):
    dag = {"schedule": schedule, "maxActiveRuns": 1}
    plain, zoned = (
        round_trip(job_to_dag(job(dag={**dag, **more}))).timetable
        for more in ({}, {"timezone": zone})
    )
    assert type(plain) is type(zoned)


@pytest.mark.parametrize(
    ("start", "zone", "moment", "clock"),
    [
        ("2026-01-01", CHICAGO, "2026-01-01T06:00:00+00:00", CHICAGO),
        ("2026-07-01", CHICAGO, "2026-07-01T05:00:00+00:00", CHICAGO),
        ("2026-01-01T00:00:00+01:00", CHICAGO, "2025-12-31T23:00:00+00:00", CHICAGO),
        ("2026-01-01", None, "2026-01-01T00:00:00+00:00", "UTC"),
        ("2026-01-01T00:00:00-06:00", None, "2026-01-01T06:00:00+00:00", "-06:00"),
    ],
)
def test_the_start_date_is_in_the_zone(start, zone, moment, clock):
    document = job(dag={"schedule": "0 3 * * *", "startDate": start, "timezone": zone})
    dag = round_trip(job_to_dag(document))
    assert dag.start_date == dt.datetime.fromisoformat(moment)
    assert dag.timezone.name == clock
    assert dag.timetable._timezone.name == clock

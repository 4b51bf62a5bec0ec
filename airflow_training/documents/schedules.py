"""When a job starts by itself: cron expressions, read by the parser that Airflow uses, and time zones. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone, tzinfo
from zoneinfo import ZoneInfo, available_timezones

from airflow_training.documents.spelling import did_you_mean
from airflow_training.documents.times import parse_time

__all__ = [
    "CRON_PRESETS",
    "cron_mistake",
    "cron_of",
    "has_fixed_offset",
    "next_starts",
    "schedule_mistake",
    "start_of",
    "uneven_step",
    "zone_mistake",
    "zone_of",
]

CRON_PRESETS: Mapping[str, str] = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@quarterly": "0 0 1 */3 *",
    "@yearly": "0 0 1 1 *",
}
"""Airflow's names for cron expressions."""

_FIELDS = (
    ("minute", "0 to 59"),
    ("hour", "0 to 23"),
    ("day of the month", "1 to 31, or L for the last"),
    ("month", "1 to 12, or JAN to DEC"),
    ("day of the week", "0 to 7, or SUN to SAT"),
)
_STEP = re.compile(r"(?P<number>[1-9]\d*)(?P<unit>m|h)")
_OTHER_PRESETS: Mapping[str, str] = {
    "@annually": "@yearly",
    "@midnight": "@daily",
    "@minutely": "* * * * *",
}
"""Names that other schedulers know -> what says the same here."""
_YEAR = re.compile(r"(19|20)\d\d([-,/].*)?")
_HASHED = re.compile(r"[HR](?:\((?P<range>\d+-\d+)\))?(?:/(?P<step>\d+))?")
_SPREAD = (17, 3, 1, 1, 1)
"""A time for each field that is not the one at which everybody's runs begin."""
_OFFSET = re.compile(
    r"(?:UTC|GMT)?\s*(?P<sign>[+-])\s*0?(?P<hours>\d{1,2})(?::?(?P<minutes>[034][05]))?",
    re.IGNORECASE,
)
_SOME_DAY = datetime(2000, 1, 1)  # noqa: DTZ001 - the parser reads the clock on the wall


def cron_of(schedule: object) -> str:
    """Return the cron expression of a schedule; nothing where it is none."""
    if not isinstance(schedule, str):
        return ""
    return CRON_PRESETS.get(schedule, "" if schedule.startswith("@") else schedule)


def schedule_mistake(schedule: str) -> tuple[str, str]:
    """Why a text that begins with `@` and is none of Airflow's presets is no schedule, and the likely fix."""
    name, _, rest = schedule.partition(" ")
    if name == "@every":
        cron = _cron_of_step(rest.strip())
        hint = (
            f"did you mean '{cron}'?"
            if cron
            else "a cron expression names the times: '*/15 * * * *'"
        )
        return "'@every' is none of Airflow's presets", hint
    hint = f"did you mean '{_OTHER_PRESETS[name]}'?" if name in _OTHER_PRESETS else ""
    if name == "@reboot":
        hint = "a machine's start is no time: '@once' runs once"
    return f"{name!r} is none of Airflow's presets", hint or did_you_mean(name, list(CRON_PRESETS))


def _cron_of_step(step: str) -> str:
    """Cron expression of `15m` or `6h` where the step divides the hour or the day; "" where none does."""
    found = _STEP.fullmatch(step)
    if found is None:
        return ""
    number = int(found["number"])
    if found["unit"] == "m":
        return f"*/{number} * * * *" if number < 60 and 60 % number == 0 else ""
    if number == 24:
        return "0 0 * * *"
    return f"0 */{number} * * *" if number < 24 and 24 % number == 0 else ""


def cron_mistake(cron: str) -> tuple[str, str] | None:
    """Return why Airflow could not follow an expression, or would not as meant, and the likely fix.

    None where it can. Of more than five fields Airflow's parser takes the *last* ones for second and year,
    most others the first for the second: none of them means what its author does.
    """
    fields = cron.split()
    if len(fields) != len(_FIELDS):
        return _wrong_number(fields)
    if any(_HASHED.fullmatch(each) for each in fields):
        fixed = " ".join(_without_hash(each, otherwise=_SPREAD[i]) for i, each in enumerate(fields))
        return (
            "'H' is of Jenkins, which chooses a time: Airflow does not",
            f"write the time itself: '{fixed}'",
        )
    return _unreadable(cron)


def uneven_step(cron: str) -> str:
    """Say when a step of minutes or hours really comes that does not divide what it is a step of; "" for none."""
    fields = cron.split()
    for i, (name, size, around) in enumerate((("minute", 60, "hour"), ("hour", 24, "day"))):
        found = re.fullmatch(r"(?:\*|0)/(\d+)", fields[i]) if len(fields) == len(_FIELDS) else None
        step = int(found[1]) if found else 0
        if step and size % step:
            times = [str(each) for each in range(0, size, step)]
            last = f"{', '.join(times[:-1])} and {times[-1]}" if len(times) > 1 else times[0]
            return f"{fields[i]!r} is {name} {last} of each {around}, not every {step} {name}s"
    return ""


def _without_hash(field: str, *, otherwise: int) -> str:
    """Return a field with a time in place of Jenkins' `H`, as often as that: `*/15` for `H/15`."""
    found = _HASHED.fullmatch(field)
    if found is None:
        return field
    if found["step"]:
        return f"{found['range'] or '*'}/{found['step']}"
    return found["range"].partition("-")[0] if found["range"] else str(otherwise)


def _wrong_number(fields: Sequence[str]) -> tuple[str, str]:
    """Why an expression has not five fields, and the five that are likely meant."""
    count, most = len(fields), len(_FIELDS)
    names = ", ".join(name for name, _ in _FIELDS)
    if count < most:
        return f"has {count} fields, and takes five: {names}", ""
    # second first, as Quartz and Spring write it; then the year last; then what only croniter reads so
    shorter = [fields[1:], fields[:-1]] if count == most + 1 else [fields[1:-1], fields[:-2]]
    if count == most + 1 and _YEAR.fullmatch(fields[-1]):
        shorter.reverse()
    meant = [" ".join(each) for each in shorter if len(each) == most]
    right = next((each for each in meant if _unreadable(each) is None), "")
    what = (
        "a second"
        if count == most + 1 and not _YEAR.fullmatch(fields[-1])
        else "a second or a year"
    )
    return (
        f"has {count} fields: {what} is not for Airflow, which starts runs by the minute; it takes five: {names}",
        f"did you mean '{right}'?" if right else "",
    )


def _unreadable(cron: str) -> tuple[str, str] | None:
    from croniter import CroniterBadCronError, CroniterBadDateError, croniter

    try:
        # Whether a date ever comes does not depend on when one asks: the parser looks 50 years ahead.
        croniter(cron, _SOME_DAY).get_next(datetime)
    except CroniterBadDateError:
        day = cron.split()[2]
        last = _with(cron, 2, "L")
        hint = f"the last day of a month is L: '{last}'" if day.isdigit() and int(day) > 28 else ""
        return "names a date that never comes", hint
    except CroniterBadCronError as error:
        return _bad_field(cron) or (f"is no cron expression: {error}", "")
    return None


def _bad_field(cron: str) -> tuple[str, str] | None:
    """Return which field is wrong, what it takes, and the likely fix."""
    from croniter import CroniterBadCronError, croniter

    def is_right(text: str) -> bool:
        try:
            croniter.expand(text)
        except CroniterBadCronError:
            return False
        return True

    fields = cron.split()
    for i, (name, range_) in enumerate(_FIELDS[: len(fields)]):
        if not is_right(_with(" ".join("*" * len(fields)), i, fields[i])):
            around = _with(cron, i, "0")  # 24:00 and 60 minutes are written as 0
            swapped = " ".join([fields[1], fields[0], *fields[2:]])
            hint = ""
            if (name, fields[i]) in (("hour", "24"), ("minute", "60")) and is_right(around):
                hint = f"did you mean '{around}'?"
            elif i < 2 and is_right(swapped):
                hint = f"the minute comes before the hour: '{swapped}'"
            return f"the {name} cannot be {fields[i]!r}: it is {range_}", hint
    return None


def _with(cron: str, position: int, field: str) -> str:
    fields = cron.split()
    fields[position] = field
    return " ".join(fields)


def zone_mistake(name: str) -> tuple[str, str] | None:
    """Return why a name is no time zone, and the nearest one; None where it is one."""
    names = available_timezones()
    if name in names:
        return None
    city = name.rpartition("/")[2].lower().replace(" ", "_")
    same_city = [each for each in names if f"/{each}".lower().endswith(f"/{city}")]
    # a near name without the same digits would be another offset
    alike = [each for each in same_city or names if _digits(each) == _digits(name)]
    hint = _offset_meant(name) or did_you_mean(name, sorted(alike))
    if same_city and not hint:
        hint = f"did you mean '{min(same_city)}'?"
    return "is no time zone: write a name of the IANA database, as America/Chicago or UTC", hint


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def _offset_meant(name: str) -> str:
    """Return how an offset from UTC is written, which has the other sign in the names of the database."""
    found = _OFFSET.fullmatch(name.strip())
    if found is None:
        return ""
    sign, hours = "-" if found["sign"] == "+" else "+", int(found["hours"])
    zone = f"Etc/GMT{sign}{hours}"
    whole = found["minutes"] in (None, "00") and zone in available_timezones()
    same = f"'{zone}' is that offset all year; " if whole else ""
    return f"{same}the name of a place follows its clocks, as Europe/Paris"


def start_of(start_date: str, zone_name: str | None) -> datetime:
    """Return the moment of `startDate`; without an offset it is in the zone, or in UTC."""
    start = parse_time(start_date)
    zone = ZoneInfo(zone_name) if zone_name else None
    if start.tzinfo is None:
        return start.replace(tzinfo=zone or timezone.utc)
    return start.astimezone(zone) if zone else start


def zone_of(start_date: str | None, zone_name: str | None) -> tzinfo:
    """Return whose clock a cron expression means; UTC where neither field says it, as Airflow's default."""
    if zone_name:
        return ZoneInfo(zone_name)
    start = start_of(start_date, None) if start_date else None
    return (start and start.tzinfo) or timezone.utc


def has_fixed_offset(start_date: str) -> bool:
    """Return whether `startDate` names an offset other than that of UTC, which is the same all year."""
    return bool(parse_time(start_date).utcoffset())


def next_starts(cron: str, zone: tzinfo, *, after: datetime, count: int) -> list[datetime]:
    """Return the next moments, in the zone, at which Airflow starts a run.

    At the changes of the clocks they are those of Airflow's timetables: a time that the clocks
    skip comes when they have been set, one that they show twice comes the second time, and what
    runs every hour does so in each hour that passes.
    """
    from croniter import croniter

    hourly = croniter.expand(cron)[0][1] == ["*"]
    starts: list[datetime] = []
    moment = after
    while len(starts) < count:
        shown = moment.astimezone(zone).replace(tzinfo=None)
        following = croniter(cron, shown).get_next(datetime)
        if hourly:
            moment = moment.astimezone(timezone.utc) + (following - shown)
        else:
            moment = max(
                following.replace(tzinfo=zone, fold=fold).astimezone(timezone.utc)
                for fold in (0, 1)
            )
        starts.append(moment.astimezone(zone))
    return starts

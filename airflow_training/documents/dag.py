"""Model of the `dag` block: when the job runs as an Airflow DAG, and its parameters."""

from __future__ import annotations

import datetime as dt
import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, Tag, WithJsonSchema
from pydantic_core import PydanticCustomError

from airflow_training.documents.base import Many, Model, Number, discriminate_by_kind
from airflow_training.documents.schedules import (
    CRON_PRESETS,
    cron_mistake,
    schedule_mistake,
    zone_mistake,
)
from airflow_training.documents.times import parse_time

__all__ = ["PRESETS", "AssetSchedule", "Dag", "Param"]

PRESETS = ("@once", "@continuous", *CRON_PRESETS)
_CRON_FIELD = r"[0-9A-Za-z*?#,/-]+"
_CRON_PATTERN = rf"^{_CRON_FIELD}( +{_CRON_FIELD}){{4}}$"
_CRON_LIKE = re.compile(r"[0-9A-Za-z*?#,/()-]+( +[0-9A-Za-z*?#,/()-]+){3,6}")
"""What is meant as a cron expression, be it right or wrong."""
_DATE_PATTERN = (
    r"^\d{4}-\d{2}-\d{2}([T ]\d{2}:\d{2}(:\d{2}(\.\d{3}(\d{3})?)?)?([zZ]|[+-]\d{2}:\d{2})?)?$"
)
_DATE = re.compile(_DATE_PATTERN)
_YEARS = range(1970, 3000)
JsonType = Literal["string", "number", "integer", "boolean", "array", "object", "null"]


def _schedule(value: str) -> str:
    if value in PRESETS:
        return value
    if value.startswith("@"):
        message, hint = schedule_mistake(value)
        told = {"message": message, "hint": hint, "allowed": list(PRESETS)}
        raise PydanticCustomError("not_allowed", "{message}", told)
    if not _CRON_LIKE.fullmatch(value):
        raise PydanticCustomError(
            "not_allowed",
            "is neither a cron expression of five fields nor a preset",
            {"allowed": list(PRESETS)},
        )
    return _unless(cron_mistake(value), value)


def _timezone(value: str) -> str:
    return _unless(zone_mistake(value), value)


def _unless(mistake: tuple[str, str] | None, value: str) -> str:
    if mistake is not None:
        message, hint = mistake
        raise PydanticCustomError("not_allowed", "{message}", {"message": message, "hint": hint})
    return value


def _date(value: Any) -> Any:
    """Keep the text of an ISO date or time; a Python date becomes its text."""
    if isinstance(value, dt.date):
        value = value.isoformat()
    if not isinstance(value, str):
        raise PydanticCustomError(
            "wrong_type", "must be {expected}", {"expected": "a date such as 2026-01-01"}
        )
    try:
        if not _DATE.fullmatch(value):
            raise ValueError(value)  # noqa: TRY301 - one message for both ways to be wrong
        year = parse_time(value).year
    except ValueError as error:
        raise PydanticCustomError(
            "not_allowed", "is no date: write 2026-01-01 or 2026-01-01T06:00:00+00:00"
        ) from error
    if (
        year not in _YEARS
    ):  # the first and last years of a calendar have times that no zone can show
        raise PydanticCustomError(
            "not_allowed", "must be a date of the years 1970 to 2999, such as 2026-01-01"
        )
    return value


class AssetSchedule(Model):
    assets: Annotated[Many[str], Field(min_length=1)]
    operator: Literal["any", "all"] = "all"


class Param(Model):
    """One parameter of the trigger form: the keywords of JSON Schema that Airflow's form reads."""

    type: (
        Annotated[
            Annotated[JsonType, Tag("<text>")] | Annotated[Many[JsonType], Tag("<list>")],
            discriminate_by_kind("a JSON type or a list of them", kinds=("<text>", "<list>")),
        ]
        | None
    ) = None
    default: Any = None
    title: str | None = None
    description: str | None = None
    description_md: Annotated[str | None, Field(alias="description_md")] = None
    enum: Annotated[Many[Any], Field(min_length=1)] | None = None
    const: Any = None
    examples: Many[Any] | None = None
    minimum: Number | None = None
    maximum: Number | None = None
    exclusive_minimum: Number | None = None
    exclusive_maximum: Number | None = None
    multiple_of: Annotated[Number, Field(gt=0)] | None = None
    min_length: Annotated[int, Field(ge=0)] | None = None
    max_length: Annotated[int, Field(ge=0)] | None = None
    pattern: str | None = None
    format: str | None = None
    items: dict[str, Any] | None = None
    min_items: Annotated[int, Field(ge=0)] | None = None
    max_items: Annotated[int, Field(ge=0)] | None = None
    unique_items: bool | None = None
    properties: dict[str, Any] | None = None
    required: Many[str] | None = None
    additional_properties: (
        Annotated[
            Annotated[bool, Tag("<flag>")] | Annotated[dict[str, Any], Tag("<object>")],
            discriminate_by_kind("true, false or a schema", kinds=("<flag>", "<object>")),
        ]
        | None
    ) = None
    section: str | None = None
    values_display: Annotated[dict[str, str] | None, Field(alias="values_display")] = None


class Dag(Model):
    schedule: (
        Annotated[
            Annotated[
                str,
                AfterValidator(_schedule),
                WithJsonSchema(
                    {
                        "anyOf": [
                            {"enum": list(PRESETS)},
                            {"type": "string", "pattern": _CRON_PATTERN},
                        ]
                    }
                ),
                Tag("<text>"),
            ]
            | Annotated[AssetSchedule, Tag("<object>")],
            discriminate_by_kind(
                "a cron expression, a preset, or {assets, operator}", kinds=("<text>", "<object>")
            ),
        ]
        | None
    ) = None
    start_date: (
        Annotated[
            str,
            BeforeValidator(_date),
            WithJsonSchema({"type": "string", "pattern": _DATE_PATTERN}),
        ]
        | None
    ) = None
    timezone: Annotated[str, AfterValidator(_timezone)] | None = None
    """Whose clock the schedule and a start date without an offset mean, by its IANA name."""
    params: dict[str, Param] = Field(default_factory=dict)
    outlets: Many[str] = Field(default_factory=list)
    """URIs of the assets that a successful run updates."""
    tags: Many[str] = Field(default_factory=list)
    max_active_runs: Annotated[int, Field(ge=1)] = 16
    catchup: bool = False
    owner: str | None = None

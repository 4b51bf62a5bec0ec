"""What a DAG run is told of the submission that it runs, by whoever triggers it: the beginning of its story."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from airflow_training.control.model import Event

__all__ = ["SUBMISSION_KEY", "submission_conf", "submission_events"]

SUBMISSION_KEY = "cloud.submission"
"""In the `conf` of a DAG run; no parameter of a job is called so."""
_REASONS = frozenset({"Submitted", "EnvironmentReady"})
_MOST = 10
_LATEST = 1e11
"""Seconds since 1970: what is later has no date that could be shown."""


def submission_conf(events: Sequence[Event]) -> Mapping[str, Any]:
    """The entry of a `conf`."""
    rows = [
        {name: each for name, each in asdict(event).items() if name in _FIELDS} for event in events
    ]
    return {SUBMISSION_KEY: rows}


def submission_events(conf: Mapping[str, Any] | None, *, by: str) -> Sequence[Event]:
    """Read it; `by`: who triggered the DAG run, as Airflow knows them.

    Anybody who may trigger a DAG run writes its `conf`: what is no such event is left out, and all of it where
    it says that somebody else has submitted.
    """
    rows = (conf or {}).get(SUBMISSION_KEY)
    if not isinstance(rows, list):
        return []
    found = [
        Event(at=row["at"], reason=row["reason"], message=row["message"], data=row["data"])
        for row in rows[:_MOST]
        if isinstance(row, dict)
        and {*row} == _FIELDS
        and row["reason"] in _REASONS
        and type(row["at"]) in (int, float)  # True is no time
        and math.isfinite(row["at"])
        and 0 <= row["at"] < _LATEST
        and isinstance(row["message"], str)
        and isinstance(row["data"], dict)
    ]
    names = [each.data.get("by") for each in found if each.reason == "Submitted"]
    return found if names and all(each == by for each in names) else []


_FIELDS = {"at", "reason", "message", "data"}

"""What agents saw instances use, as series beside the metrics of scripts: at most one point a minute and instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from airflow_training.control.system_metrics import record_number, system_metrics
from airflow_training.documents.instances import InstanceKey
from airflow_training.state.database import upsert
from airflow_training.state.metrics import metric_row
from airflow_training.state.models import MetricRow, table_of

__all__ = ["save"]

_SECONDS = 60.0
"""1,024 instances, each with GPUs, make 6 million rows a day at this pace."""


def save(
    connection: Connection, uid: str, newest: Mapping[InstanceKey, Sequence[Mapping[str, Any]]]
) -> None:
    """Keep what the newest two records of instances say, where the last is the first of its minute."""
    rows = [
        metric_row(uid, key, name=name, at=at, step=None, value=value)
        for key, records in newest.items()
        if (at := _begins_minute(records)) is not None
        for name, value in system_metrics(records).items()
    ]
    upsert(connection, table_of(MetricRow), rows)


def _begins_minute(records: Sequence[Mapping[str, Any]]) -> float | None:
    """Return the time of the last of these records; None where the one before is of the same minute, or nothing runs."""
    *before, newest = records
    at = record_number(newest, "at")
    if at is None or newest.get("on") == "exit":  # it uses nothing any more
        return None
    known = [record_number(each, "at") for each in before]
    is_same = any(each is not None and each // _SECONDS == at // _SECONDS for each in known)
    return None if is_same else at

"""What agents saw instances use, as series beside the metrics of scripts: at most one point a minute and instance."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy import Connection

from airflow_training.control.model import InstanceKey
from airflow_training.control.system_metrics import record_number, system_metrics
from airflow_training.state import environment
from airflow_training.state.database import upsert
from airflow_training.state.models import MetricRow, table_of
from airflow_training.state.progress import rank_column

__all__ = ["save"]

_SECONDS = 60.0
"""1,024 instances, each with GPUs, make 6 million rows a day at this pace."""


def save(connection: Connection, uid: str, keys: Collection[InstanceKey]) -> None:
    """Keep what the newest records of these instances say, in the place of what the same minute has."""
    rows = [
        {
            "run": uid,
            "role": role,
            "index": index,
            "rank": rank_column(None),
            "name": name,
            # the same key for all looks of a minute: nothing has to be read to keep one of them
            "at": at // _SECONDS * _SECONDS,
            "step": None,
            "value": float(value),
        }
        for (role, index), records in environment.last_two(connection, uid, of=keys).items()
        if (at := record_number(records[-1].body, "at")) is not None
        and records[-1].body.get("on") != "exit"  # it uses nothing any more
        for name, value in system_metrics([each.body for each in records]).items()
    ]
    upsert(connection, table_of(MetricRow), rows)

"""Where the processes of a run stand: the newest snapshot of each checkpoint group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from airflow_training.state.database import upsert
from airflow_training.state.models import SubtasksRow, table_of

__all__ = ["of_run", "save"]


def save(
    connection: Connection, uid: str, snapshots: Mapping[str, Mapping[str, Any]], *, now: float
) -> None:
    """Replace the snapshots of these groups."""
    rows = [
        {
            "run": uid,
            "group": group,
            "at": now,
            "body": json.dumps({**document}, separators=(",", ":")),
        }
        for group, document in snapshots.items()
    ]
    upsert(connection, table_of(SubtasksRow), rows)


def of_run(connection: Connection, uid: str) -> Mapping[str, Any]:
    """Return group -> snapshot; None for one that is damaged beyond reading."""
    rows = connection.execute(
        select(SubtasksRow.group, SubtasksRow.body).where(SubtasksRow.run == uid)
    )
    found: dict[str, Any] = {}
    for group, body in rows:
        found[group] = None
        with contextlib.suppress(ValueError):
            found[group] = json.loads(body)
    return found

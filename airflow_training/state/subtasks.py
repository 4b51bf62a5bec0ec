"""Where the processes of a run stand: the newest snapshot of each checkpoint group."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from airflow_training.state.database import StorePart, upsert
from airflow_training.state.models import SubtasksRow, table_of
from airflow_training.state.run_lookup import must_exist

__all__ = ["SubtaskSnapshots"]


class SubtaskSnapshots(StorePart):
    """Where the processes of runs stand."""

    def save(self, uid: str, snapshots: Mapping[str, Mapping[str, Any]]) -> None:
        """Keep the newest snapshot of each checkpoint group (`control.subtask_snapshot`)."""
        with self._db.write() as connection:
            must_exist(connection, uid)
            now = self._db.now(connection)
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

    def of_run(self, uid: str) -> Mapping[str, Any]:
        """Return the newest snapshot of each checkpoint group; None for one that is no JSON."""
        with self._db.read() as connection:
            rows = connection.execute(
                select(SubtasksRow.group, SubtasksRow.body).where(SubtasksRow.run == uid)
            )
            found: dict[str, Any] = {}
            for group, body in rows:
                found[group] = None
                with contextlib.suppress(ValueError):
                    found[group] = json.loads(body)
            return found

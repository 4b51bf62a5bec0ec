"""The newest events of a run that tell of its checkpoints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.state.models import EventRow

__all__ = ["newest"]

_REASONS = (
    reasons.CHECKPOINT_COMMITTED,
    reasons.CHECKPOINT_REJECTED,
    reasons.STEPPED_BACK,
    reasons.FRESH_JOB,
)


def newest(connection: Connection, uid: str, *, limit: int) -> Sequence[Event]:
    """Return the newest of them, oldest first."""
    rows: Sequence[Any] = connection.execute(
        select(
            EventRow.at,
            EventRow.reason,
            EventRow.message,
            EventRow.role,
            EventRow.index,
            EventRow.data,
        )
        .where(EventRow.run == uid, EventRow.reason.in_(_REASONS))
        .order_by(EventRow.seq.desc())
        .limit(limit)
    ).all()
    return [
        Event(
            at=row.at,
            reason=row.reason,
            message=row.message,
            role=row.role,
            index=row.index,
            data=json.loads(row.data),
        )
        for row in reversed(rows)
    ]

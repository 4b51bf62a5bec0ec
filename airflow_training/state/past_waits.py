"""How long earlier runs of a job took from their submission until all of them ran."""

from __future__ import annotations

import json
from collections.abc import Sequence

from sqlalchemy import Connection, select

from airflow_training.control.expected_start import waited_seconds
from airflow_training.control.model import JobEntry
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.state.codec import from_json
from airflow_training.state.models import JobRow, RunRow

__all__ = ["past_waits"]

_NEWEST = 20
"""Runs that are looked at: older ones say little of the queue of today."""


def past_waits(connection: Connection, job: ResolvedJob, *, besides: str) -> Sequence[float]:
    """Return the waits of the newest runs of the same job on the same runtime and queue."""
    rows = connection.execute(
        select(RunRow.entry, JobRow.body)
        .join(JobRow, (JobRow.run == RunRow.uid) & (JobRow.revision == RunRow.job_revision))
        .where(
            RunRow.job == job.name,
            RunRow.namespace == job.namespace,
            RunRow.runtime == job.runtime,
            RunRow.uid != besides,
        )
        .order_by(RunRow.submitted_at.desc())
        .limit(_NEWEST)
    )
    waits = [
        waited_seconds(from_json(JobEntry, entry))
        for entry, body in rows
        if _queue_of(body) == (job.scheduling.gang, job.scheduling.queue)
    ]
    return [each for each in waits if each is not None]


def _queue_of(body: str) -> tuple[str, str]:
    scheduling = json.loads(body).get("scheduling") or {}
    return scheduling.get("gang", "none"), scheduling.get("queue", "")

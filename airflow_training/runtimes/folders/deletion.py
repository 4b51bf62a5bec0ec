"""A warning: that a job names no place for its output, though the folder of its run is deleted some time after the end. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem

__all__ = ["deleted_with_run"]


def deleted_with_run(job: ResolvedJob) -> Iterator[Problem]:
    """Yield a warning for outputs that `ttlSecondsAfterFinished` deletes: those that no address names."""
    if job.ttl_seconds_after_finished is None or job.output_uri:
        return
    yield Problem(
        code="conflict",
        field="spec.ttlSecondsAfterFinished",
        value=job.ttl_seconds_after_finished,
        message="so long after the end the run's folder is deleted, with everything that was written to TRAINING_OUTPUT_DIR",
        hint="output.uri keeps it",
    )

"""Warnings: what a job leaves in the folder of its run, though the folder is deleted some time after the end. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem

__all__ = ["deleted_with_run"]


def deleted_with_run(job: ResolvedJob) -> Iterator[Problem]:
    """Yield a warning for outputs, and one for checkpoints, that `ttlSecondsAfterFinished` deletes."""
    if job.ttl_seconds_after_finished is None:
        return
    if not job.output_uri or _is_in_run(job, job.output_uri):
        hint = "output.uri brings it to another place"
        if job.output_uri:
            hint += ": in a document that lies in no folder a whole path, or object storage"
        yield _warning(job, "everything that was written to TRAINING_OUTPUT_DIR", hint)
    if job.checkpoint is not None and _is_in_run(job, job.checkpoint.uri):
        hint = "checkpoint.uri: a whole path, or object storage, keeps them for other runs"
        yield _warning(job, "the checkpoints", hint)


def _is_in_run(job: ResolvedJob, uri: str) -> bool:
    """Return whether an address leads into the folder of the run; of a template, only the run knows."""
    return bool(uri) and not (job.base_dir or "://" in uri or uri.startswith(("/", "{{")))


def _warning(job: ResolvedJob, lost: str, hint: str) -> Problem:
    return Problem(
        code="conflict",
        field="spec.ttlSecondsAfterFinished",
        value=job.ttl_seconds_after_finished,
        message=f"so long after the end the run's folder is deleted, with {lost}",
        hint=hint,
    )

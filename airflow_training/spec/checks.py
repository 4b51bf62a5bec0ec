"""Cross-field checks of a job that need no framework and no runtime. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from airflow_training.errors import Problem
from airflow_training.spec.models import TrainingJob

__all__ = ["check", "warnings_of"]


def check(job: TrainingJob, *, params: Collection[str] = ()) -> list[Problem]:
    """Return the mistakes of a job whose fields are each right by themselves."""
    return []


def warnings_of(job: TrainingJob) -> list[Problem]:
    """Return what a user should know about a job that is right."""
    return []

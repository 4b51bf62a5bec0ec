"""What of a job can never stay for a look inside on a cluster, told before it starts. Pure."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.runtimes.kubernetes.facts import RunFacts
from airflow_training.runtimes.kubernetes.pods import PodOptions, waits_for
from airflow_training.runtimes.port import InstanceSpec

__all__ = ["never_kept"]


def never_kept(
    job: ResolvedJob, facts: RunFacts, firsts: Sequence[InstanceSpec], options: PodOptions
) -> Sequence[Problem]:
    """Return the roles of which nothing can stay for a look inside, though the job wants it."""
    if not job.restart.keep_failed_seconds:
        return ()
    able = [dataclasses.replace(each, in_place_seconds=1.0, keep_seconds=1.0) for each in firsts]
    roles = [each.ref.role for each in able if not waits_for(each, facts, options)]
    if not roles:
        return ()
    why = "the agent is not the parent of their command"
    if not options.callback_url:
        why = "[training] callback_url is not set, so that no agent can tell that it waits"
    return [
        Problem(
            code="not_supported",
            field="spec.restart.keepFailedSeconds",
            value=job.restart.keep_failed_seconds,
            message=f"nothing of {', '.join(roles)} can stay for a look inside: {why}",
        )
    ]

"""What of a job can never stay for a look inside on a cluster, told before it starts. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.shapes import mapping
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.kubernetes import names

__all__ = ["never_kept"]


def never_kept(job: ResolvedJob, *, callback_url: str) -> Sequence[Problem]:
    """Return the roles of which nothing can stay for a look inside, though the job wants it.

    `callback_url`: where agents tell that they wait; "": nowhere.
    """
    if not job.restart.keep_failed_seconds:
        return ()
    roles = [
        role.name
        for role in job.roles
        if role.replicas and not (callback_url and _has_agent(job, role))
    ]
    if not roles:
        return ()
    why = "the agent is not the parent of their command"
    if not callback_url:
        why = "[training] callback_url is not set, so that no agent can tell that it waits"
    return [
        Problem(
            code="not_supported",
            field="spec.restart.keepFailedSeconds",
            value=job.restart.keep_failed_seconds,
            message=f"nothing of {', '.join(roles)} can stay for a look inside: {why}",
        )
    ]


def _has_agent(job: ResolvedJob, role: ResolvedRole) -> bool:
    """Return whether the agent is the parent of a role's first command, where agents report (`pods`)."""
    environment = job.environment is not None and not job.environment.image
    uploads = bool(job.output_uri) and role.name == job.output_role
    if uploads or job.code or role.trains_network or environment:
        return True
    annotations = mapping(mapping(role.template.get("metadata")).get("annotations"))
    command = training_container(role.template, None, name=role.container).get("command")
    finishes = job.finishes and role.name == job.output_role
    return bool(command) and (finishes or annotations.get(names.AGENT) != "false")

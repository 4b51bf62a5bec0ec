"""What keeps a job that is written well from starting: an instance that cannot be rendered."""

from __future__ import annotations

from airflow_training.documents.resolved import ResolvedJob, RunRef
from airflow_training.errors import InputError, Problem
from airflow_training.runtimes.rendering import expected_addresses, render_instance

__all__ = ["check_rendering"]


def check_rendering(resolved: ResolvedJob) -> list[Problem]:
    """Return why an instance could not be rendered with the values of this run."""
    run = RunRef(uid="", job=resolved.name, namespace=resolved.namespace, controller="")
    addresses = expected_addresses(resolved, run.prefix)
    problems: list[Problem] = []
    for role in resolved.roles:
        if not role.replicas:
            continue
        try:
            render_instance(resolved, run, addresses, role=role.name, index=0)
        except InputError as error:
            problems += error.problems
    return problems

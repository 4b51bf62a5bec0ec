"""What keeps a job that is written well from starting here, or does nothing here."""

from __future__ import annotations

from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.supervise.rendering import expected_addresses, render_instance

__all__ = ["incomplete", "unrenderable", "without_effect"]


def without_effect(resolved: ResolvedJob) -> list[Problem]:
    """Return what the job asks of a scheduler that is not asked, or does not know it."""
    wanted = resolved.scheduling
    given: dict[str, str] = {
        "gang": "" if wanted.gang == "none" else wanted.gang,
        "queue": wanted.queue,
        "priorityClassName": wanted.priority_class_name,
        "spread": str((wanted.spread or {}).get("topologyKey", "")),
    }
    if resolved.runtime == "local":
        message = "is for Kubernetes and has no effect on the local runtime"
        useless = [key for key, value in given.items() if value]
    else:
        message = f"has no effect: gang {wanted.gang} knows no queues"
        useless = ["queue"] if wanted.queue and wanted.gang in ("none", "coscheduling") else []
    return [
        Problem(
            code="not_supported",
            field=f"spec.schedulingPolicy.{key}",
            value=given[key],
            message=message,
        )
        for key in useless
    ]


def incomplete(resolved: ResolvedJob) -> list[Problem]:
    """Return `missing` where this runtime could not start a role."""
    key = "command" if resolved.runtime == "local" else "image"
    bare = []
    for role in resolved.roles:
        container = training_container(role.template, None, name=role.container)
        if role.replicas and not container.get(key):
            bare.append(role.name)
    if not bare:
        return []
    starts = "this machine starts a command" if key == "command" else "a pod needs an image"
    return [
        Problem(
            code="missing",
            field=f"spec.{key}",
            message=f"no {key} for {', '.join(bare)}: {starts}",
            hint=f"write spec.{key}, or {key} in the role",
        )
    ]


def unrenderable(resolved: ResolvedJob) -> list[Problem]:
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

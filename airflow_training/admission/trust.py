"""What a deployment lets a job ask for: namespaces, connections, accounts, rights over the node.

Reads the resolved job, so that it does not matter in which layer something was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from importlib import import_module
from typing import Any, Literal

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import InputError, Problem
from airflow_training.settings import Settings

__all__ = ["trust_problems"]

_NODE_RIGHTS = ("hostNetwork", "hostPID", "hostIPC")


def trust_problems(
    job: TrainingJob,
    resolved: ResolvedJob,
    *,
    source: Literal["file", "form"],
    user: str,
    settings: Settings,
) -> list[Problem]:
    """Return `not_allowed` for everything this deployment does not give to the job."""
    positions = {role.name: i for i, role in enumerate(job.spec.roles)}
    problems = list(_allow_lists(resolved, positions, settings))
    if source == "form":
        problems += _node_rights(resolved, positions)
        problems += _server_files(job)
    if settings.job_policy and not problems:
        problems += _ask_policy(settings.job_policy, resolved, user)
    return problems


def _allow_lists(
    resolved: ResolvedJob, positions: Mapping[str, int], settings: Settings
) -> Iterator[Problem]:
    asked = [("metadata.namespace", "namespace", resolved.namespace, settings.allowed_namespaces)]
    if resolved.connection:
        field = "spec.runtime.connection"
        asked.append((field, "connection", resolved.connection, settings.allowed_connections))
    for role in resolved.roles:
        pod = mapping(role.template.get("spec"))
        for key in ("serviceAccountName", "serviceAccount"):
            if pod.get(key):
                field = f"spec.roles[{positions[role.name]}].template.spec.{key}"
                allowed = settings.allowed_service_accounts
                asked.append((field, "service account", str(pod[key]), allowed))
    for field, what, value, allowed in asked:
        if not any(fnmatchcase(value, pattern) for pattern in allowed):
            yield Problem(
                code="not_allowed",
                field=field,
                value=value,
                message=f"this deployment does not let jobs use the {what} '{value}'",
                allowed=allowed,
            )


def _node_rights(resolved: ResolvedJob, positions: Mapping[str, int]) -> Iterator[Problem]:
    """Yield what reaches past the pod to its node: too much for text that anybody may type."""
    for role in resolved.roles:
        pod = mapping(role.template.get("spec"))
        where = f"spec.roles[{positions[role.name]}].template.spec"
        for key in _NODE_RIGHTS:
            if pod.get(key):
                yield _too_much(f"{where}.{key}", key)
        for i, volume in enumerate(mappings(pod.get("volumes"))):
            if "hostPath" in volume:
                yield _too_much(f"{where}.volumes[{i}].hostPath", "hostPath")
        for kind in ("containers", "initContainers"):
            for i, container in enumerate(mappings(pod.get(kind))):
                if mapping(container.get("securityContext")).get("privileged"):
                    field = f"{where}.{kind}[{i}].securityContext.privileged"
                    yield _too_much(field, "privileged")


def _server_files(job: TrainingJob) -> Iterator[Problem]:
    """Yield what a plan would read, or even call, of the server's own files."""
    plan = job.spec.plan
    if isinstance(plan.model, str):
        yield _too_much("spec.plan.model", "a file or module to plan for")
    if isinstance(plan.cluster, str) and plan.cluster not in ("nodes", "request"):
        yield _too_much("spec.plan.cluster", "a file to plan for")


def _too_much(field: str, what: str) -> Problem:
    return Problem(
        code="not_allowed",
        field=field,
        value=what,
        message=f"{what} is refused in a job that came through a form",
        hint="put the job into the jobs folder",
    )


def _ask_policy(reference: str, resolved: ResolvedJob, user: str) -> list[Problem]:
    """Return what the deployment's own `job_policy(job, user)` says. One that breaks refuses."""
    try:
        policy = _load(reference)
    except (ImportError, AttributeError, ValueError) as error:
        return [_refused(f"[training] job_policy {reference!r} cannot be loaded: {error}")]
    try:
        message = policy(resolved, user)
    except InputError as error:
        return list(error.problems)
    except Exception as error:  # noqa: BLE001 - somebody else's code; raising is how it refuses
        message = str(error) or type(error).__name__
    return [_refused(str(message))] if message else []


def _load(reference: str) -> Callable[[ResolvedJob, str], Any]:
    module, _, name = reference.partition(":")
    if not module or not name:
        raise ValueError("it must be module:function")
    policy: Callable[[ResolvedJob, str], Any] = getattr(import_module(module), name)
    return policy


def _refused(message: str) -> Problem:
    return Problem(code="not_allowed", field="spec", message=message)

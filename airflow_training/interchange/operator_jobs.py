"""Roles of the training operator's jobs (`kubeflow.org/v1`), and the document around them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.paths import Loc
from airflow_training.interchange.accounts import SourceField
from airflow_training.interchange.batch_job import first_port
from airflow_training.interchange.metadata import job_document, queue_of_labels
from airflow_training.interchange.pod_templates import HostNames, PodRules, translate_template
from airflow_training.interchange.run_policy import (
    restart_policy,
    run_policy,
    scheduler_of,
    scheduling,
)

__all__ = ["OperatorKind", "operator_document", "success_of", "translate_roles"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind:
    """What the operator knows of one kind of job."""

    framework: str
    """Ours; the operator calls it the same."""
    replicas: str
    """The field that holds the roles."""
    roles: tuple[str, ...]
    """In the order of our document. The operator writes them with a capital, and reads any."""
    container: str
    port: int
    restart: str
    """The restart policy where none is written."""
    taken: frozenset[str] = frozenset()
    """Variables that it sets over those of the document."""


def translate_roles(
    spec: SourceField, kind: OperatorKind, job: str, *, container: str | None = None
) -> list[dict[str, Any]]:
    """Return the roles; `container`: where not the kind says its name, empty for the first."""
    source = spec[kind.replicas].block()
    source.anchor(("spec", "roles"))
    written = {name.lower(): source[name].block() for name in source.names()}
    present = [role for role in kind.roles if written.get(role)]
    if not present:
        message = f"needs a role: {', '.join(kind.roles)}"
        source.accounts.mistake(source.loc, "missing", message)
    ports: dict[str, int] = {}
    for role in present:
        ports |= {role: kind.port} | first_port(written[role]["template"], role)
    names = "|".join(kind.roles)
    hosts = HostNames(
        re.compile(
            rf"(?<![\w-])(?P<host>{re.escape(job)}-(?P<role>{names})-(?P<i>\d+)"
            r"(?:\.[a-z][\w.-]*)?)(?![\w-])(?::(?P<port>\d+))?"
        ),
        lambda match: (match["role"], int(match["i"])) if match["role"] in present else None,
    )
    found = []
    for number, role in enumerate(present):
        to: Loc = ("spec", "roles", number)
        written[role].anchor(to)
        count = written[role]["replicas"]
        count.settle("kept", 1, to=(*to, "replicas"), why="")
        rules = PodRules(
            container=kind.container if container is None else container,
            ours=kind.container,
            taken=kind.taken,
            named={
                "training.kubeflow.org/job-name": job,
                "training.kubeflow.org/replica-index": "$(TRAINING_INDEX)",
                "training.kubeflow.org/replica-type": role,
            },
            hosts=hosts,
            ports=ports,
        )
        found.append(
            {
                "name": role,
                "replicas": count.whole(1),
                "restartPolicy": restart_policy(written[role], to, default=kind.restart),
                "template": translate_template(written[role]["template"], (*to, "template"), rules),
            }
        )
    return found


def success_of(source: SourceField, roles: list[dict[str, Any]], *chiefs: str) -> dict[str, Any]:
    """The condition of success: the operator looks at the chief alone, where there is one."""
    names = [role["name"] for role in roles]
    chief = next((name for name in chiefs if name in names), "")
    if not chief or len(names) == 1:
        return {}
    source.accounts.default(
        ("spec", "successPolicy"),
        f"the {chief.capitalize()}",
        "translated",
        to=("spec", "successPolicy", "targetRoles"),
        why=f"the job has succeeded when its {chief} has; others that still run are ended",
    )
    return {"successPolicy": {"targetRoles": [chief]}}


def operator_document(
    source: SourceField,
    kind: OperatorKind,
    roles: list[dict[str, Any]],
    *,
    parameters: dict[str, Any] | None = None,
    success: dict[str, Any] | None = None,
    clean: SourceField | None = None,
) -> dict[str, Any]:
    """Return the whole document; `clean`: where the clean-up stands, if not in `runPolicy`."""
    policy = source["spec"]["runPolicy"].block()
    keys, restart = run_policy(policy, roles, clean=clean)
    if any(role["restartPolicy"] == "ExitCode" for role in roles):
        restart["exitCodes"] = "kubeflow"
    labelled = queue_of_labels(source)
    queue = scheduling(
        policy["schedulingPolicy"].block(), scheduler_of(roles), queue=bool(labelled)
    )
    queue |= labelled
    return job_document(
        source,
        {
            "framework": kind.framework,
            **({"parameters": parameters} if parameters else {}),
            "roles": roles,
            **(success or {}),
            "restart": restart,
            **({"schedulingPolicy": queue} if queue else {}),
            **keys,
        },
    )

"""`--single`: the same job as one local instance, where its framework says that makes sense. Pure text."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from airflow_training.builtin_runtimes import HERE
from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.parsing import parse
from airflow_training.documents.plan import APPLY
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.registry import load_for

__all__ = ["single_text"]

_ONLY_FOR_MANY = ("minReplicas", "maxReplicas", "dependsOn", "minSucceeded", "minFailed")
_ABOUT_ROLES = ("successPolicy", "failurePolicy", "schedulingPolicy")


def single_text(text: str, *, path: str, base_dir: str, fetch: bool) -> str:
    """Return the only document of a text, reduced to one instance of its framework's single role.

    `fetch`: the framework from its address too. A text with mistakes comes back as it is: the check that follows reports them. Raises
    InputError (`not_supported`), saying why, where the job makes no sense alone.
    """
    documents = parse(text, path)
    if len(documents) != 1 or documents[0].job is None:
        return text
    job, document = documents[0].job, copy.deepcopy(dict(documents[0].raw))
    framework = load_for(job, base_dir=base_dir, fetch=fetch).framework
    names = [role.name for role in job.spec.roles]
    wanted = framework.spec.single_role or (names[0] if len(names) == 1 else "")
    if wanted not in names:
        why = (
            f"{framework.name} would keep the role {wanted!r}, which this job does not have"
            if wanted
            else f"{framework.name} does not say which of the roles {', '.join(names)} can work alone"
        )
        problem = Problem(
            code="not_supported",
            field="--single",
            value=job.metadata.name,
            message=f"this job cannot run as one instance: {why}",
            hint="run it without --single",
        )
        raise InputError(problems=[problem], path=path)
    return dump_yaml(_alone(document, role=wanted))


def _alone(document: dict[str, Any], *, role: str) -> Mapping[str, Any]:
    spec = document["spec"]
    kept = next(each for each in spec["roles"] if each.get("name") == role)
    kept = {key: value for key, value in kept.items() if key not in _ONLY_FOR_MANY}
    spec["roles"] = [{**kept, "replicas": 1}]
    spec["runtime"] = {"name": HERE}  # the options of another one would be none of this one's
    for policy in _ABOUT_ROLES:
        spec.pop(policy, None)
    if isinstance(spec.get("output"), dict):
        spec["output"].pop("role", None)
    if spec.get("plan"):  # for the one instance that is left
        spec["plan"].pop("role", None)
        applied = spec["plan"].get("apply", APPLY)
        spec["plan"]["apply"] = [each for each in applied if each != "replicas"]
    return document

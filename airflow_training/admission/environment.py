"""The environment that a job names, looked up and kept with its run: its digest, and where its files are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from airflow_training.admission.environment_lookups import EnvironmentLookups
from airflow_training.admission.request import AdmissionRequest
from airflow_training.documents.resolved import ResolvedJob, ResolvedRole
from airflow_training.documents.resolved_blocks import ResolvedEnvironment
from airflow_training.environments.addresses import storage_address
from airflow_training.errors import InputError, Problem, TrainingError
from airflow_training.frameworks.pods import training_container
from airflow_training.runtimes.adapter import Adapter

__all__ = ["with_environment"]

_FIELD = "spec.environment"
_LOOKUPS = EnvironmentLookups()
"""Of this process."""
_OLDEST = (3, 10)


def with_environment(
    resolved: ResolvedJob, adapter: Adapter, request: AdmissionRequest, *, goes_to: str
) -> tuple[ResolvedJob, Sequence[Problem], Sequence[Problem]]:
    """Return the job with its environment looked up, problems and warnings; as it is where it names none.

    `goes_to`: the runtime where it would run; `adapter` may be another one, where it is only shown. A job that does not start yet may be checked where the storage of environments cannot be reached.
    """
    named = resolved.environment
    if named is None:
        return resolved, (), ()
    if not adapter.capabilities.environments:
        message = f"the runtime {adapter.name} makes no environments ready"
        hint = "leave it out: commands run on the Python that is there"
        return resolved, [_problem("not_supported", _FIELD, message, hint=hint)], ()
    problems: list[Problem] = []
    if resolved.code is not None and resolved.code.has_packages:
        message = "are installed for the Python of the image, and an environment has another"
        hint = "add an environment that has them: airflow-training environments add"
        problems.append(_problem("conflict", "spec.code.packages", message, hint=hint))
    if not request.looks_up:
        return resolved, problems, ()
    try:
        storage = storage_address(request.settings.environments)
        found = _look_up(named, storage, age=request.look_up_age)
    except InputError as error:
        found_wrong = [replace(each, field=f"{_FIELD}.{each.field}") for each in error.problems]
        unknown = not request.starts and not request.settings.environments
        return resolved, problems if unknown else [*problems, *found_wrong], found_wrong if unknown else ()  # fmt: skip
    except (TrainingError, OSError) as error:
        message = f"cannot be looked up: {error}"
        away = [_problem("bad_reference", _FIELD, message, value=named.title)]
        return resolved, [*problems, *away] if request.starts else problems, () if request.starts else away  # fmt: skip
    resolved = replace(resolved, environment=found)
    elsewhere = not (adapter.capabilities.runs_here or adapter.capabilities.shares_files)
    warnings: Sequence[Problem] = ()
    if elsewhere:
        resolved, wrong = _elsewhere(resolved, found)
        if adapter.name == goes_to:
            problems += wrong
        else:  # only shown there
            warnings = wrong
    return resolved, problems, warnings


def _look_up(named: ResolvedEnvironment, storage: str, *, age: float) -> ResolvedEnvironment:
    # packaging, and what lists distributions: only for a job that names an environment
    from airflow_training.environments.builtin import BUILTIN

    found = _LOOKUPS.find(named.name, named.version, storage=storage, age=age)
    return replace(
        named,
        version=found.version,
        digest=found.digest,
        storage="" if found.name == BUILTIN else storage,
        python=found.python,
        image=found.image,
    )


def _elsewhere(
    resolved: ResolvedJob, found: ResolvedEnvironment
) -> tuple[ResolvedJob, Sequence[Problem]]:
    """Return the job for instances that do not see this machine, with the environment's image where it names one."""
    if found.image:
        return _with_image(resolved, found)
    add = "airflow-training environments add NAME@VERSION"
    if not found.storage:
        message = "is made of the Python of this machine, which instances elsewhere do not have"
        hint = f"put it into a storage that they reach: {add}"
        return resolved, [_problem("not_supported", f"{_FIELD}.name", message, value=found.name, hint=hint)]  # fmt: skip
    if tuple(map(int, found.python.split(".")[:2])) < _OLDEST:
        message = (
            f"is for Python {found.python}, and what makes it where an instance runs needs 3.10"
        )
        hint = f"name an image that has it: {add} --image IMAGE"
        return resolved, [_problem("not_supported", f"{_FIELD}.name", message, value=found.name, hint=hint)]  # fmt: skip
    if "://" not in found.storage:
        message = f"is kept in {found.storage}, a folder of this machine, which instances elsewhere do not see"
        hint = "set [training] environments to an address: s3://..., or file://... of a volume that they mount"
        return resolved, [_problem("not_supported", f"{_FIELD}.name", message, value=found.name, hint=hint)]  # fmt: skip
    return resolved, ()


def _with_image(
    resolved: ResolvedJob, found: ResolvedEnvironment
) -> tuple[ResolvedJob, Sequence[Problem]]:
    problems, roles = [], []
    for role in resolved.roles:
        image = training_container(role.template, None, name=role.container).get("image")
        if image and image != found.image:
            message = f"the environment {found.title} has an image of its own, {found.image}"
            hint = "leave the image out, or the environment"
            problems.append(_problem("conflict", f"spec.roles.{role.name}.image", message, value=image, hint=hint))  # fmt: skip
        roles.append(_role_with_image(role, found.image))
    return replace(resolved, roles=tuple(roles)), problems


def _role_with_image(role: ResolvedRole, image: str) -> ResolvedRole:
    pod: Mapping[str, Any] = role.template.get("spec") or {}
    containers = [
        {**each, "image": image} if each.get("name") == role.container else each
        for each in pod.get("containers") or ()
    ]
    if not any(each.get("name") == role.container for each in containers):
        containers.insert(0, {"name": role.container, "image": image})
    return replace(role, template={**role.template, "spec": {**pod, "containers": containers}})


def _problem(code: str, field: str, message: str, **more: Any) -> Problem:
    return Problem(code=code, field=field, message=message, **more)

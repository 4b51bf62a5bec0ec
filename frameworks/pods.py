"""The pod template of a role: framework, shorthand and user merged; its container, env and ports."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.documents.merge import merge_templates, shorthand_template
from airflow_training.documents.shapes import mapping, mappings
from airflow_training.errors import Problem

if TYPE_CHECKING:  # who only starts instances of a resolved job needs none of the models
    from airflow_training.documents.models import TrainingJobSpec
    from airflow_training.documents.roles import Role, Shorthand
    from airflow_training.frameworks.model import FrameworkSpec, RoleDefinition, TemplateLayer

__all__ = [
    "container_env",
    "environment_problems",
    "merge_role_template",
    "ports_of",
    "requested_amounts",
    "training_container",
]

OWN_PREFIX = "TRAINING_"
_THE_USERS = frozenset(
    {
        "TRAINING_CHECKPOINT_KEY",
        "TRAINING_CODE_ROOTS",
        "TRAINING_DATA_GUARD",
        "TRAINING_DATA_ON_DEMAND",
        "TRAINING_DATA_RANGES",
        "TRAINING_DATA_ROOTS",
        "TRAINING_DATA_SOCKET",
        "TRAINING_DEVICE_COMMAND",
        "TRAINING_LOADS_FILE",
        "TRAINING_PARAMETERS",
    }
)
"""Of our prefix, but set by who writes the job: those of the data hook by who starts its fetcher."""


def merge_role_template(
    spec: TrainingJobSpec,
    role: Role,
    definition: RoleDefinition,
    framework: FrameworkSpec,
    *,
    layers: Sequence[TemplateLayer],
    command_prefix: Sequence[str],
    runtime: str,
) -> dict[str, Any]:
    """Return the PodTemplateSpec of a role, the weakest layer first.

    Framework, its `layers` that apply, framework for this runtime, the job's shorthand, the role's,
    the role's template. `command_prefix`: words before the command that comes of all of them.
    """
    jobs = _written(spec)
    if definition.own_command:
        jobs = {key: value for key, value in jobs.items() if key not in ("command", "args")}
    roles = _written(role)
    merged = merge_templates(
        definition.template,
        *(layer.template for layer in layers),
        definition.template_for.get(runtime, {}),
        shorthand_template(framework.container, jobs),
        shorthand_template(framework.container, roles),
        role.template,
    )
    if not command_prefix:
        return merged
    command = training_container(merged, framework).get("command")
    words = [*command_prefix, *(command if isinstance(command, list) else ())]
    return merge_templates(merged, shorthand_template(framework.container, {"command": words}))


def training_container(
    template: Mapping[str, Any], framework: FrameworkSpec | None, *, name: str = ""
) -> Mapping[str, Any]:
    """Return the container that trains; empty where the template has none of that name."""
    wanted = framework.container if framework is not None else name
    for container in mappings(mapping(template.get("spec")).get("containers")):
        if container.get("name") == wanted:
            return container
    return {}


def requested_amounts(container: Mapping[str, Any]) -> dict[str, str]:
    """Return resource -> amount that a container asks for: its limit where there is one, else its request."""
    asked = mapping(container.get("resources"))
    merged = {**mapping(asked.get("requests")), **mapping(asked.get("limits"))}
    return {name: str(amount) for name, amount in merged.items()}


def container_env(container: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the `env` entries of a container."""
    return [entry for entry in mappings(container.get("env")) if "name" in entry]


def ports_of(
    template: Mapping[str, Any], framework: FrameworkSpec, definition: RoleDefinition
) -> dict[str, int]:
    """Return port name -> number: the framework's first, with the user's numbers, then theirs."""
    own: dict[str, int] = {}
    for i, port in enumerate(mappings(training_container(template, framework).get("ports"))):
        number = port.get("containerPort")
        if isinstance(number, int):
            own[str(port.get("name") or f"port-{i}")] = number
    defaults = definition.ports if definition.ports is not None else framework.ports
    ports = {
        port.name: own.get(port.name, port.container_port)
        for port in defaults
        if not (port.yields and own)
    }
    return ports | own


def environment_problems(
    spec: TrainingJobSpec, role: Role, reserved: Collection[str], *, by: str = "by the framework"
) -> list[Problem]:
    """Return `reserved_env` for each variable of the user that is set `by` somebody else."""
    position = next(i for i, each in enumerate(spec.roles) if each is role)
    problems = []
    for field, name in _users_env(spec, role, f"spec.roles[{position}]"):
        if not name or "=" in name or "\0" in name:
            message = "is no name that a process can have a variable of"
            problems.append(Problem(code="bad_name", field=field, value=name, message=message))
        ours = name.startswith(OWN_PREFIX) and name not in _THE_USERS
        if name in reserved or ours:
            said = "for every instance" if ours else by
            problems.append(
                Problem(
                    code="reserved_env",
                    field=field,
                    value=name,
                    message=f"'{name}' is set {said}",
                    hint="choose another name, or leave it out",
                )
            )
    return problems


def _users_env(spec: TrainingJobSpec, role: Role, where: str) -> Iterator[tuple[str, str]]:
    for i, entry in enumerate(mappings(spec.env)):
        yield f"spec.env[{i}].name", str(entry.get("name", ""))
    for i, entry in enumerate(mappings(role.env)):
        yield f"{where}.env[{i}].name", str(entry.get("name", ""))
    containers = mapping(mapping(role.template).get("spec")).get("containers")
    for c, container in enumerate(mappings(containers)):
        for i, entry in enumerate(mappings(container.get("env"))):
            field = f"{where}.template.spec.containers[{c}].env[{i}].name"
            yield field, str(entry.get("name", ""))


def _written(shorthand: Shorthand) -> dict[str, Any]:
    """Return the shorthand keys that were written, in camelCase; null stays, it takes away."""
    from airflow_training.documents.roles import SHORTHAND

    return {
        key: getattr(shorthand, name)
        for key, name in SHORTHAND.items()
        if name in shorthand.model_fields_set
    }

"""Who waits for whom: the job's own `dependsOn`, else the framework's. Cheap: DAG parsing uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedDependency
from airflow_training.documents.roles import Role
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.model import RoleDefinition
from airflow_training.frameworks.registry import LoadedFramework, load_for

__all__ = ["dependencies_of", "role_dependencies", "unknown_roles"]


def role_dependencies(job: TrainingJob, *, base_dir: str = "") -> Mapping[str, Sequence[str]]:
    """Return role -> the roles it waits for, in the order of the document.

    Raises InputError where the framework or one of the roles does not exist. Never fetches.
    """
    loaded = load_for(job, base_dir=base_dir, fetch=False)
    problems = unknown_roles(job, loaded)
    if problems:
        raise InputError(problems=problems)
    present = {role.name for role in job.spec.roles}
    return {
        role.name: [
            dependency.role
            for dependency in dependencies_of(
                role, loaded.framework.spec.role(role.name), present=present
            )
        ]
        for role in job.spec.roles
    }


def dependencies_of(
    role: Role, definition: RoleDefinition | None, *, present: set[str]
) -> tuple[ResolvedDependency, ...]:
    """Dependencies of a role: the user's own (an empty list too), else the default."""
    if "depends_on" in role.model_fields_set or definition is None:
        return tuple(ResolvedDependency(**each.model_dump()) for each in role.depends_on)
    return tuple(
        ResolvedDependency(**each.model_dump())
        for each in definition.depends_on
        if each.role in present and each.role != role.name
    )


def unknown_roles(job: TrainingJob, loaded: LoadedFramework) -> list[Problem]:
    """Return `unknown_role` for each role that the framework does not know."""
    spec = loaded.framework.spec
    known = [role.name for role in spec.roles]
    if spec.any_role or spec.other_roles is not None:
        return []
    return [
        Problem(
            code="unknown_role",
            field=f"spec.roles[{i}].name",
            value=role.name,
            message=f"the framework {loaded.framework.name} has no role '{role.name}'",
            allowed=known,
            hint=did_you_mean(role.name, known),
        )
        for i, role in enumerate(job.spec.roles)
        if role.name not in known
    ]

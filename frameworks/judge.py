"""What a framework has to say about a job before anything is made of it: facts, and refusals. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.roles import Role
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.dependencies import unknown_roles
from airflow_training.frameworks.model import (
    EnvDefinition,
    FileDefinition,
    FrameworkSpec,
    RoleDefinition,
    TemplateLayer,
)
from airflow_training.frameworks.naming import check_names
from airflow_training.frameworks.parameters import fill_parameters
from airflow_training.frameworks.pods import environment_problems
from airflow_training.frameworks.registry import LoadedFramework
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.frameworks.templates import FrameworkTemplateError, holds, render

__all__ = ["FrameworkFacts", "judge"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkFacts:
    """What is known of a job once it is laid beside its framework."""

    framework: FrameworkSpec
    parameters: Mapping[str, Any]
    """All of the framework's, with defaults; None for one that is not set."""
    definitions: Mapping[str, RoleDefinition]
    """Of every role of the job; plain defaults for one the framework does not list."""
    ordered: Sequence[Role]
    """The job's roles in the order of ranks."""
    chief: str
    elastic: bool
    known: Mapping[str, Any]
    """What conditions see, besides their role."""
    _answers: dict[tuple[str, str], bool] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """(condition, role) -> whether it holds: many variables share one, and several ask."""

    def applies(self, entry: EnvDefinition | FileDefinition, role: str) -> bool:
        """Return whether a variable or file belongs to a role; raises InputError."""
        kind = self.framework.kind_of(role)
        return (not entry.roles or kind in entry.roles) and self._holds(entry.when, role)

    def layers(self, role: str) -> Sequence[TemplateLayer]:
        """Return the conditional pod templates of a role that apply; raises InputError."""
        return [each for each in self.definitions[role].templates if self._holds(each.when, role)]

    def command_prefix(self, role: str) -> Sequence[str]:
        """Return the words before the command of a role; raises InputError."""
        words = self.definitions[role].command_prefix
        try:
            return [render(word, {**self.known, "role": role}) for word in words]
        except FrameworkTemplateError as error:
            raise InputError.of(
                code="bad_template",
                field="spec.framework",
                value=list(words),
                message=f"the words before the command of role '{role}': {error}",
            ) from error

    def _holds(self, condition: str, role: str) -> bool:
        asked = condition, role
        if asked not in self._answers:
            self._answers[asked] = self._answer(condition, role)
        return self._answers[asked]

    def _answer(self, condition: str, role: str) -> bool:
        try:
            return holds(condition, {**self.known, "role": role})
        except FrameworkTemplateError as error:
            raise InputError.of(
                code="bad_reference",
                field="spec.framework",
                value=condition,
                message=f"a condition of the framework cannot be answered: {error}",
            ) from error

    def reserved(self, role: str) -> set[str]:
        """Return the names of variables that the user must not set in a role."""
        injected = {
            env.name
            for env in self.framework.env
            if not env.overridable and self.applies(env, role)
        }
        return injected | set(self.framework.reserved_env)


def judge(
    job: TrainingJob, loaded: LoadedFramework, *, runtime: RuntimeFacts
) -> tuple[FrameworkFacts, list[Problem]]:
    """Return the facts of a job and everything its framework refuses."""
    spec, framework = job.spec, loaded.framework.spec
    problems = unknown_roles(job, loaded) + _required_roles(job, loaded) + _sizes(job, loaded)
    problems += check_names(
        job.metadata.name,
        [(role.name, max(role.replicas, role.max_replicas or 0)) for role in spec.roles],
    )
    parameters, mistakes = fill_parameters(
        framework.parameters, spec.parameters, framework=loaded.framework.name
    )
    problems += mistakes
    facts = _facts(spec.roles, framework, parameters=parameters, runtime=runtime)
    for role in spec.roles:
        problems += environment_problems(spec, role, facts.reserved(role.name))
    return facts, _once(problems)


def _facts(
    roles: Sequence[Role],
    framework: FrameworkSpec,
    *,
    parameters: Mapping[str, Any],
    runtime: RuntimeFacts,
) -> FrameworkFacts:
    definitions = {
        # unchecked: the name of a role was judged with the document
        role.name: framework.role(role.name) or RoleDefinition.model_construct(name=role.name)
        for role in roles
    }
    ordered = sorted(roles, key=lambda role: _rank_order(role.name, framework, roles))
    chief = _chief(ordered, definitions)
    elastic = framework.elastic is not None and any(
        role.min_replicas is not None or role.max_replicas is not None for role in roles
    )
    none_of_any = {role.name: 0 for role in framework.roles}
    return FrameworkFacts(
        framework=framework,
        parameters=parameters,
        definitions=definitions,
        ordered=ordered,
        chief=chief,
        elastic=elastic,
        known={
            "chief": chief,
            "elastic": elastic,
            "parameters": parameters,
            "replicas": none_of_any | {role.name: role.replicas for role in roles},
            "roles": [role.name for role in ordered if role.replicas],
            "total_replicas": sum(role.replicas for role in roles),
            **runtime.template_names,
        },
    )


def _required_roles(job: TrainingJob, loaded: LoadedFramework) -> list[Problem]:
    present = {role.name: i for i, role in enumerate(job.spec.roles)}
    problems = []
    for definition in loaded.framework.spec.roles:
        if not definition.required:
            continue
        name = definition.name
        if name not in present:
            field, message = "spec.roles", f"needs a role '{name}'"
        elif not job.spec.roles[present[name]].replicas:
            field, message = f"spec.roles[{present[name]}].replicas", f"needs a '{name}'"
        else:
            continue
        problems.append(
            Problem(
                code="missing",
                field=field,
                message=f"the framework {loaded.framework.name} {message}",
                allowed=[role.name for role in loaded.framework.spec.roles],
                hint=definition.description,
            )
        )
    return problems


def _sizes(job: TrainingJob, loaded: LoadedFramework) -> list[Problem]:
    """Return `not_supported` for numbers of instances that the framework cannot have."""
    framework = loaded.framework.spec
    name = loaded.framework.name
    problems = []
    for i, role in enumerate(job.spec.roles):
        definition = framework.role(role.name)
        most = definition.max_replicas if definition else None
        for key, value in (("replicas", role.replicas), ("maxReplicas", role.max_replicas or 0)):
            if most is not None and value > most:
                problems.append(
                    Problem(
                        code="not_supported",
                        field=f"spec.roles[{i}].{key}",
                        value=value,
                        message=f"the framework {name} takes at most {most} '{role.name}'",
                    )
                )
        elastic_roles = framework.elastic.roles if framework.elastic else []
        for key, bound in (("minReplicas", role.min_replicas), ("maxReplicas", role.max_replicas)):
            if bound is None or role.name in elastic_roles:
                continue
            able = ", ".join(elastic_roles)
            problems.append(
                Problem(
                    code="not_supported",
                    field=f"spec.roles[{i}].{key}",
                    value=bound,
                    message=f"the role '{role.name}' of the framework {name} is not elastic",
                    hint=f"elastic is: {able}" if able else "leave it out and use replicas",
                )
            )
    return problems


def _rank_order(name: str, framework: FrameworkSpec, roles: Sequence[Role]) -> int:
    """Return the place of a role: the framework's order, then the document's."""
    known = [role.name for role in framework.roles]
    if name in known:
        return known.index(name)
    return len(known) + [role.name for role in roles].index(name)


def _chief(ordered: Sequence[Role], definitions: Mapping[str, RoleDefinition]) -> str:
    alive = [role for role in ordered if role.replicas] or list(ordered)
    if not alive:
        return ""  # a document so broken that it has no roles; it will not run
    for role in alive:
        if definitions[role.name].chief:
            return role.name
    return next((role.name for role in alive if definitions[role.name].ranked), alive[0].name)


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems without repeats (a variable of the whole job, found for each role)."""
    seen: dict[tuple[str, str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.code, problem.field, problem.message), problem)
    return list(seen.values())

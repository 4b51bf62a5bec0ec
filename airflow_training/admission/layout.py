"""A job laid out with its framework at the size it has, and whether it can start in any order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from airflow_training.admission.defaults import effective_defaults
from airflow_training.admission.environment import with_environment
from airflow_training.admission.log_patterns import check_framework
from airflow_training.admission.request import AdmissionRequest
from airflow_training.admission.trust import trust_problems
from airflow_training.control.gang import (
    StartupChoice,
    choose_startup,
    prove_startup,
)
from airflow_training.control.waves import cycle
from airflow_training.documents.parsing import ParsedDocument, TrainingJob
from airflow_training.documents.problems import problems_of, unknown_keys
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import Problem
from airflow_training.frameworks.pods import training_container
from airflow_training.frameworks.resolve import resolve
from airflow_training.runtimes.adapter import Adapter, runs_nothing
from airflow_training.runtimes.registry import adapter_of, explained_adapter, keeps_size
from airflow_training.settings import Settings

__all__ = ["JobLayout", "make_layout"]

_GRAPH_MISTAKES = frozenset({"cycle", "duplicate", "self_dependency", "unknown_role"})
"""After these there is no order of roles to prove anything about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobLayout:
    """A job laid out with its framework, and all that can be said against it."""

    resolved: ResolvedJob
    startup: StartupChoice | None
    """How gang and start order live together, and why; None where no order could be found."""
    defaults: Sequence[Mapping[str, Any]]
    """`[{field, value, from}]` as `explain` prints it; from: user | framework | airflow-training, or
    deployment, with `why`."""
    problems: Sequence[Problem]
    warnings: Sequence[Problem]


def make_layout(
    job: TrainingJob,
    document: ParsedDocument,
    request: AdmissionRequest,
    *,
    runtime: str,
    variables: Mapping[str, Any],
) -> JobLayout:
    """Lay a job out at its current size: roles, instances and addresses; raises InputError for the framework's faults."""
    framework = request.framework_of(job)
    check_framework(framework)
    adapter = adapter_of(runtime).at(job.spec.runtime.connection or "")
    asked, problems = resolve(
        job,
        framework,
        runtime=adapter.facts,
        variables=variables,
        base_dir=request.base_dir,
        document=document.raw,
    )
    asked = replace(asked, finishes=_finishes(adapter, asked))
    problems += [
        *_options_problems(adapter, asked),
        *_code_problems(adapter, asked),
        *_stop_problems(adapter, asked),
    ]
    goes_to = request.selected_runtime(job)
    asked, wrong_environment, doubts = with_environment(asked, adapter, request, goes_to=goes_to)
    problems += wrong_environment
    if adapter.name == goes_to:
        problems += adapter.refused_names(asked)
    resolved, startup = _with_gang(asked), None
    if not _GRAPH_MISTAKES & {problem.code for problem in (*document.problems, *problems)}:
        resolved, startup, mistakes = _prove(job, resolved, adapter)
        problems += mistakes
    wrong = {problem.field for problem in problems}
    shown = explained_adapter()
    elsewhere = () if goes_to == shown.name else shown.refused_names(resolved)
    warnings = [
        *doubts,
        *adapter.warnings(resolved),
        *adapter.deployment_warnings(resolved, request.settings),
        *(each for each in elsewhere if each.field not in wrong),
    ]
    resolved = _bounded(resolved, request.settings)
    problems += trust_problems(
        job, resolved, source=request.source, user=request.user, settings=request.settings
    )
    named = resolved.environment is None and job.spec.runtime.name == adapter.name
    cannot_run = named or runs_nothing(resolved)
    (problems if request.starts or cannot_run else warnings).extend(adapter.missing(resolved))
    return JobLayout(
        resolved=resolved,
        startup=startup,
        defaults=effective_defaults(
            job,
            asked,
            framework=framework.framework.spec,
            deadline=resolved.active_deadline_seconds,
            request=request,
        ),
        problems=problems,
        warnings=warnings,
    )


def _with_gang(resolved: ResolvedJob) -> ResolvedJob:
    """Return the job with what the kind of its gang means for those who know no kind."""
    fixed = keeps_size(resolved.scheduling.gang)
    return replace(resolved, scheduling=replace(resolved.scheduling, keeps_size=fixed))


def _options_problems(adapter: Adapter, resolved: ResolvedJob) -> list[Problem]:
    """Return what is wrong in the part of the document that only the runtime understands."""
    field = ("spec", "runtime", "options")
    if adapter.options is None:
        message = f"is no key here: the runtime {adapter.name} has no options"
        return unknown_keys(resolved.runtime_options, (), field=".".join(field), message=message)
    try:
        adapter.options.model_validate(resolved.runtime_options)
    except ValidationError as error:
        return problems_of(error, model=adapter.options, prefix=field)
    return []


def _code_problems(adapter: Adapter, resolved: ResolvedJob) -> list[Problem]:
    """Return what keeps the job's code from being laid out before its commands start."""
    if resolved.code is None or adapter.capabilities.code:
        return []
    message = f"the runtime {adapter.name} lays out no code"
    return [Problem(code="not_supported", field="spec.code", message=message)]


def _finishes(adapter: Adapter, resolved: ResolvedJob) -> bool:
    """Return whether somebody hears it in the instance with the output: an agent is the parent of commands that it knows."""
    if not (resolved.stop_until and adapter.capabilities.finishes):
        return False
    role = next((each for each in resolved.roles if each.name == resolved.output_role), None)
    if role is None:
        return False
    container = training_container(role.template, None, name=role.container)
    return bool(resolved.output_uri or resolved.code or container.get("command"))


def _stop_problems(adapter: Adapter, resolved: ResolvedJob) -> list[Problem]:
    """Return what would end the job as succeeded without the output that it declares."""
    if not (resolved.stop_until and resolved.output_uri) or resolved.finishes:
        return []
    message = (
        f"the runtime {adapter.name} cannot tell an instance to finish, so that the output would not be uploaded;"
        " leave out spec.output, or save by spec.checkpoint"
    )
    return [
        Problem(
            code="conflict",
            field="spec.stop.until",
            value=resolved.stop_until,
            message=message,
        )
    ]


def _prove(
    job: TrainingJob, resolved: ResolvedJob, adapter: Adapter
) -> tuple[ResolvedJob, StartupChoice | None, list[Problem]]:
    """Return the job with the startup that was chosen, and what cannot work in any order."""
    closed = _cycle(job, resolved)
    if closed is not None:
        return resolved, None, [closed]
    choice = choose_startup(resolved, job.spec.scheduling_policy.startup)
    scheduled = replace(resolved.scheduling, startup=choice.startup)
    resolved = replace(resolved, scheduling=scheduled)
    problem = prove_startup(resolved, choice.startup)
    problems = [problem] if problem else []
    return resolved, choice, [*problems, *adapter.problems(resolved)]


def _cycle(job: TrainingJob, resolved: ResolvedJob) -> Problem | None:
    """Return the cycle that the framework's default dependencies close, if they do."""
    found = cycle({role.name: [d.role for d in role.depends_on] for role in resolved.roles})
    if not found:
        return None
    names = [role.name for role in job.spec.roles]
    implied = [
        n for n in found if "depends_on" not in job.spec.roles[names.index(n)].model_fields_set
    ]
    blamed = implied[0] if implied else found[0]
    return Problem(
        code="cycle",
        field=f"spec.roles[{names.index(blamed)}].dependsOn",
        value=blamed,
        message=f"the roles wait for each other: {' -> '.join(found)}",
        hint=f"the framework makes '{blamed}' wait; dependsOn: [] there takes that away"
        if implied
        else "",
    )


def _bounded(resolved: ResolvedJob, settings: Settings) -> ResolvedJob:
    """Return the job with the deployment's ceiling over its deadline."""
    ceiling = settings.max_run_seconds
    if ceiling <= 0:
        return resolved
    own = resolved.active_deadline_seconds
    return replace(resolved, active_deadline_seconds=min(own or ceiling, ceiling))

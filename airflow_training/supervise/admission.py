"""From a job document to a resolved job: parse, framework, resolve, prove, trust. One answer.

The command line, the plan task and the DAG loader all call this; what it accepts can be started.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from airflow_training.control.gang import (
    StartupChoice,
    choose_startup,
    kueue_problems,
    prove_startup,
)
from airflow_training.control.waves import cycle
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.judge import judge
from airflow_training.frameworks.pods import training_container
from airflow_training.frameworks.registry import Loaded, load_for
from airflow_training.frameworks.resolve import Resolution, resolve
from airflow_training.settings import Settings, load_settings
from airflow_training.spec.checks import check
from airflow_training.spec.models import TrainingJob
from airflow_training.spec.params import check_params
from airflow_training.spec.parsing import ParsedDocument, parse, with_lines
from airflow_training.spec.resolved import ResolvedJob, RunRef
from airflow_training.supervise.rendering import expected_addresses, render_instance
from airflow_training.supervise.trust import trust_problems

if TYPE_CHECKING:
    from airflow_training.supervise.planned import Planned

__all__ = ["Checked", "Planner", "check_file", "check_text"]

Planner = Callable[[TrainingJob, ResolvedJob], "Planned | None"]
"""Searches the plan of a job that asks for one; None where the run has its plan already."""
Source = Literal["file", "form"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One document of a file after every check that needs no runtime."""

    path: str
    problems: Sequence[Problem]
    """Errors; empty when valid."""
    warnings: Sequence[Problem]
    resolved: ResolvedJob | None
    """None when there are errors."""
    defaults: Sequence[Mapping[str, Any]] = ()
    """`[{field, value, from}]` as `explain` prints it; from: user | framework | airflow-training."""
    job: TrainingJob | None = None
    """The document as a model; None when its fields could not be read."""
    startup: StartupChoice | None = None
    """How gang and start order live together, and why."""


def check_file(
    path: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    fetch: bool = False,
    run_uid: str = "",
    user: str = "",
    planner: Planner | None = None,
) -> Sequence[Checked]:
    """Check every document of a file. `overrides`: `--set path=value`. Raises nothing for bad input."""
    from airflow_training.spec.loading import read_file

    try:
        text = read_file(path)
    except InputError as error:
        return (Checked(path=str(path), problems=error.problems, warnings=(), resolved=None),)
    return check_text(
        text,
        path=str(path),
        base_dir=str(Path(path).resolve().parent),
        params=params,
        overrides=overrides,
        variables=variables,
        runtime=runtime,
        fetch=fetch,
        run_uid=run_uid,
        user=user,
        planner=planner,
    )


def check_text(
    text: str,
    *,
    path: str = "<text>",
    base_dir: str = "",
    params: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    fetch: bool = False,
    run_uid: str = "",
    source: Source = "file",
    user: str = "",
    planner: Planner | None = None,
) -> Sequence[Checked]:
    """As `check_file`, for text.

    `params` are values for `dag.params`, checked against what the document declares; `variables`
    is what templates see besides (`run_id`, `logical_date`, ...); `runtime` goes before the
    document's. `run_uid` is not empty when the job is about to run: then it must be complete, with
    a value for each parameter and a command or an image. `source="form"` is text from a trigger
    form: it names no files of the server and gets no rights over nodes. `user` is what the
    `job_policy` hook is told. `planner` plans the jobs that ask for it; without one, nothing is
    planned. It may raise RuntimeUnavailable.
    """
    try:
        settings = load_settings()
    except ValueError as error:
        broken = Problem(code="not_allowed", field="[training]", message=str(error))
        return (Checked(path=path, problems=(broken,), warnings=(), resolved=None),)
    request = _Request(
        base_dir="" if source == "form" else base_dir,
        params=params or {},
        variables=variables or {},
        runtime=runtime,
        fetch=fetch,
        starts=bool(run_uid),
        source=source,
        user=user,
        settings=settings,
        planner=planner,
    )
    return [
        _check(document, request)
        for document in parse(
            text, path, overrides=overrides, params=None if params is None else tuple(params)
        )
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Request:
    """What the caller said, the same for all documents."""

    base_dir: str
    params: Mapping[str, Any]
    variables: Mapping[str, Any]
    runtime: str | None
    fetch: bool
    starts: bool
    source: Source
    user: str
    settings: Settings
    planner: Planner | None


def _check(document: ParsedDocument, request: _Request) -> Checked:
    """Return the answer for one document: all its mistakes from every room."""
    problems = list(document.problems)
    warnings = list(document.warnings)
    job = document.job
    if job is None:
        problems += _in_the_draft(document, request)
        return _answer(document, problems, warnings)
    values, mistakes = _params(job, request)
    problems += mistakes
    runtime = _runtime(job, request)
    if runtime not in _RUNTIMES:
        problems.append(_no_runtime(runtime))
        return _answer(document, problems, warnings)
    variables = {**request.variables, "params": values}
    try:
        laid = _lay_out(job, document, request, runtime=runtime, variables=variables)
        if job.spec.plan.model is not None:
            ready = request.planner is not None and not (problems or laid.problems)
            planned = request.planner(job, laid.resolved) if request.planner and ready else None
            if planned is not None:
                job = planned.sized(job)
                problems += [*check(job, data=document.raw), *planned.refused(job)]
                laid = _lay_out(job, document, request, runtime=runtime, variables=variables)
                laid = replace(laid, resolved=planned.equipped(laid.resolved))
            elif not ready:
                problems += _unplannable(job, laid.resolved)
    except InputError as error:
        problems += _of_the_job(error, job)
        return _answer(document, problems, warnings)
    problems += laid.problems
    warnings += [*laid.warnings, *_not_followed(job, laid.resolved)]
    if request.starts and not problems:
        problems += _unrenderable(laid.resolved)
    answer = _answer(document, problems, warnings)
    if answer.problems:
        return answer
    return replace(
        answer, resolved=laid.resolved, defaults=laid.resolution.defaults, startup=laid.startup
    )


def _unplannable(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return what of a plan can be seen to be wrong without a search."""
    from airflow_training.supervise.planning import mistakes_of  # numpy: only where there is a plan

    return mistakes_of(job, resolved)


def _not_followed(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return a warning where a plan was asked to follow its cluster and cannot."""
    plan = job.spec.plan
    if "replan" not in plan.model_fields_set or plan.replan == "Never":
        return []
    from airflow_training.supervise.replanning import why_fixed  # numpy: only where there is a plan

    why = why_fixed(plan, resolved)
    if not why:
        return []
    message = f"has no effect: {why}"
    return [
        Problem(code="not_supported", field="spec.plan.replan", value=plan.replan, message=message)
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Laid:
    """A job laid out with its framework, and all that can be said against it."""

    resolution: Resolution
    resolved: ResolvedJob
    startup: StartupChoice | None
    problems: Sequence[Problem]
    warnings: Sequence[Problem]


def _lay_out(
    job: TrainingJob,
    document: ParsedDocument,
    request: _Request,
    *,
    runtime: str,
    variables: Mapping[str, Any],
) -> _Laid:
    """Return what a job becomes at the size it has; raises InputError for the framework's faults."""
    resolution = _resolve(job, document, request, runtime=runtime, variables=variables)
    problems, warnings = list(resolution.problems), list(resolution.warnings)
    resolved, startup = resolution.job, None
    if not _GRAPH_MISTAKES & {problem.code for problem in (*document.problems, *problems)}:
        resolved, startup, mistakes = _prove(job, resolved)
        problems += mistakes
    warnings += _without_effect(resolved)
    resolved = _bounded(resolved, request.settings)
    problems += trust_problems(
        job, resolved, source=request.source, user=request.user, settings=request.settings
    )
    (problems if request.starts else warnings).extend(_incomplete(resolved))
    return _Laid(
        resolution=resolution,
        resolved=resolved,
        startup=startup,
        problems=problems,
        warnings=warnings,
    )


def _answer(
    document: ParsedDocument, problems: Sequence[Problem], warnings: Sequence[Problem]
) -> Checked:
    return Checked(
        path=document.path,
        problems=with_lines(_once(problems), document.lines),
        warnings=with_lines(warnings, document.lines),
        resolved=None,
        job=document.job,
    )


def _in_the_draft(document: ParsedDocument, request: _Request) -> list[Problem]:
    """Return what the framework refuses in a document whose fields could not all be read.

    So a person who mistyped a key learns of a reserved variable in the same answer.
    """
    from pydantic import ValidationError

    from airflow_training.spec.draft import look_further

    def look(job: TrainingJob) -> list[Problem]:
        try:
            return judge(job, _load(job, request), runtime=_runtime(job, request))[1]
        except InputError as error:
            return _of_the_job(error, job)

    try:
        TrainingJob.__pydantic_validator__.validate_python(
            document.raw, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return look_further(document.raw, error, look)
    return []


def _runtime(job: TrainingJob, request: _Request) -> str:
    return request.runtime or job.spec.runtime.name or request.settings.default_runtime


def _load(job: TrainingJob, request: _Request) -> Loaded:
    return load_for(job, base_dir=request.base_dir, fetch=request.fetch, settings=request.settings)


_RUNTIMES = ("local", "kubernetes")


def _no_runtime(name: str) -> Problem:
    return Problem(
        code="not_allowed",
        field="spec.runtime.name",
        value=name,
        message=f"there is no runtime '{name}'",
        allowed=_RUNTIMES,
    )


_GRAPH_MISTAKES = frozenset({"cycle", "duplicate", "self_dependency", "unknown_role"})
"""After these there is no order of roles to prove anything about."""


def _params(job: TrainingJob, request: _Request) -> tuple[dict[str, Any], list[Problem]]:
    """Return the value of every parameter, and what is wrong with those that were given."""
    declared = job.spec.dag.params if job.spec.dag else {}
    values, problems = check_params(declared, request.params)
    if not request.starts:
        # nobody has been asked yet; wrong defaults were reported with the document
        problems = [problem for problem in problems if problem.code != "missing"]
    return values, problems


def _resolve(
    job: TrainingJob,
    document: ParsedDocument,
    request: _Request,
    *,
    runtime: str,
    variables: Mapping[str, Any],
) -> Resolution:
    """Return what the job's framework makes of it; raises InputError for the framework's own faults."""
    return resolve(
        job,
        _load(job, request),
        runtime=runtime,
        variables=variables,
        base_dir=request.base_dir,
        document=document.raw,
    )


def _of_the_job(error: InputError, job: TrainingJob) -> list[Problem]:
    """Return problems of a framework as ones of the job that names it."""
    if not error.path:
        return list(error.problems)
    return [
        Problem(
            code="bad_reference",
            field="spec.framework",
            value=job.spec.framework_name,
            message=f"the framework's file {error.path} is not valid: {problem}",
            hint=f"airflow-training frameworks check {error.path}",
        )
        for problem in error.problems
    ]


def _prove(
    job: TrainingJob, resolved: ResolvedJob
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
    if resolved.runtime == "kubernetes":
        problems += kueue_problems(resolved, choice.startup)
    return resolved, choice, problems


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


def _without_effect(resolved: ResolvedJob) -> list[Problem]:
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


def _incomplete(resolved: ResolvedJob) -> list[Problem]:
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


def _unrenderable(resolved: ResolvedJob) -> list[Problem]:
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


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems without the second report of the same mistake from another room."""
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.code, problem.field), problem)
    return list(seen.values())

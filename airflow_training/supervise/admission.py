"""From a job document to a resolved job: parse, framework, resolve, prove, trust. One answer.

The command line, the plan task and the DAG loader all call this; what it accepts can be started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from airflow_training.control.gang import StartupChoice
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.judge import judge
from airflow_training.settings import load_settings
from airflow_training.spec.checks import check
from airflow_training.spec.models import TrainingJob
from airflow_training.spec.parsing import ParsedDocument, parse, with_lines
from airflow_training.spec.resolved import ResolvedJob
from airflow_training.supervise.admission_request import AdmissionRequest, Planner, Source
from airflow_training.supervise.layout import lay_out
from airflow_training.supervise.log_patterns import mistakes_of
from airflow_training.supervise.startable import unrenderable

__all__ = ["Checked", "check_file", "check_text"]

_RUNTIMES = ("local", "kubernetes")


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
    request = AdmissionRequest(
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


def _check(document: ParsedDocument, request: AdmissionRequest) -> Checked:
    """Return the answer for one document: all its mistakes from every room."""
    problems = list(document.problems)
    warnings = list(document.warnings)
    job = document.job
    if job is None:
        problems += _in_the_draft(document, request)
        return _answer(document, problems, warnings)
    values, mistakes = request.values_for(job)
    problems += mistakes
    runtime = request.runtime_of(job)
    if runtime not in _RUNTIMES:
        problems.append(_no_runtime(runtime))
        return _answer(document, problems, warnings)
    variables = {**request.variables, "params": values}
    try:
        laid = lay_out(job, document, request, runtime=runtime, variables=variables)
        if job.spec.plan.model is not None:
            ready = request.planner is not None and not (problems or laid.problems)
            planned = request.planner(job, laid.resolved) if request.planner and ready else None
            if planned is not None:
                job = planned.sized(job)
                problems += [*check(job, data=document.raw), *planned.refused(job)]
                laid = lay_out(job, document, request, runtime=runtime, variables=variables)
                laid = replace(laid, resolved=planned.equipped(laid.resolved))
            elif not ready:
                problems += _unplannable(job, laid.resolved)
    except InputError as error:
        problems += _of_the_job(error, job)
        return _answer(document, problems, warnings)
    problems += [*laid.problems, *mistakes_of(job.spec.logs.patterns)]
    warnings += [*laid.warnings, *_not_followed(job, laid.resolved)]
    if request.starts and not problems:
        problems += unrenderable(laid.resolved)
    answer = _answer(document, problems, warnings)
    if answer.problems:
        return answer
    return replace(
        answer, resolved=laid.resolved, defaults=laid.resolution.defaults, startup=laid.startup
    )


def _no_runtime(name: str) -> Problem:
    return Problem(
        code="not_allowed",
        field="spec.runtime.name",
        value=name,
        message=f"there is no runtime '{name}'",
        allowed=_RUNTIMES,
    )


def _unplannable(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return what of a plan can be seen to be wrong without a search."""
    from airflow_training.supervise import planning  # numpy: only where there is a plan

    return planning.mistakes_of(job, resolved)


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


def _in_the_draft(document: ParsedDocument, request: AdmissionRequest) -> list[Problem]:
    """Return what the framework refuses in a document whose fields could not all be read.

    So a person who mistyped a key learns of a reserved variable in the same answer.
    """
    from pydantic import ValidationError

    from airflow_training.spec.draft import look_further

    def look(job: TrainingJob) -> list[Problem]:
        try:
            found = judge(job, request.framework_of(job), runtime=request.runtime_of(job))[1]
            return [*found, *mistakes_of(job.spec.logs.patterns)]
        except InputError as error:
            return _of_the_job(error, job)

    try:
        TrainingJob.__pydantic_validator__.validate_python(
            document.raw, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return look_further(document.raw, error, look)
    return []


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


def _once(problems: Sequence[Problem]) -> list[Problem]:
    """Return the problems without the second report of the same mistake from another room."""
    seen: dict[tuple[str, str], Problem] = {}
    for problem in problems:
        seen.setdefault((problem.code, problem.field), problem)
    return list(seen.values())

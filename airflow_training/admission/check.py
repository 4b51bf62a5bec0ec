"""From a job document to a resolved job: parse, framework, resolve, prove, trust. One answer.

The command line, the plan task and the DAG loader all call this; what it accepts can be started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from airflow_training.admission.layout import JobLayout, make_layout
from airflow_training.admission.log_patterns import check_log_patterns
from airflow_training.admission.plan.network_model import model_problems, with_network
from airflow_training.admission.request import (
    AdmissionRequest,
    Planner,
    Source,
    parameter_values,
)
from airflow_training.admission.startable import check_rendering
from airflow_training.builtin_runtimes import is_runtime, runtime_names
from airflow_training.control.memory import growth_warnings
from airflow_training.documents.checks import check
from airflow_training.documents.parsing import ParsedDocument, TrainingJob, parse
from airflow_training.documents.problems import distinct, overflows, with_lines
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.text import counted
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.judge import judge
from airflow_training.frameworks.runtime_facts import RuntimeFacts
from airflow_training.runtimes.registry import adapter_of
from airflow_training.settings import load_settings

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` from 3.11 on

    from airflow_training.admission.trainer.job import AdmittedTrainer

__all__ = ["AdmissionResponse", "CheckOptions", "check_file", "check_text", "check_unresolved"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionResponse:
    """One document of a file after every check that needs no runtime."""

    path: str
    problems: Sequence[Problem]
    """Errors; empty when valid."""
    warnings: Sequence[Problem]
    job: TrainingJob | None = None
    """The document as a model; None when its fields could not be read."""
    layout: JobLayout | None = None
    """None when there are errors."""

    @property
    def resolved(self) -> ResolvedJob | None:
        """The job that may start; None when there are errors."""
        return self.layout.resolved if self.layout is not None else None


class CheckOptions(TypedDict, total=False):
    """How a file is checked: see `check_text`."""

    params: Mapping[str, Any] | None
    overrides: Sequence[str]
    variables: Mapping[str, Any] | None
    runtime: str | None
    shown_on: str
    fetch: bool
    look_up: bool
    look_up_age: float
    run_uid: str
    user: str
    planner: Planner | None


def check_file(path: str | Path, **options: Unpack[CheckOptions]) -> Sequence[AdmissionResponse]:
    """Check every document of a file, as `check_text` does. Raises nothing for bad input."""
    from airflow_training.documents.loading import read_file

    try:
        text = read_file(path)
    except InputError as error:
        return (AdmissionResponse(path=str(path), problems=error.problems, warnings=()),)
    return check_text(text, path=str(path), base_dir=str(Path(path).resolve().parent), **options)


def check_text(
    text: str,
    *,
    path: str = "<text>",
    base_dir: str = "",
    params: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    shown_on: str = "",
    fetch: bool = False,
    look_up: bool = True,
    look_up_age: float = 0.0,
    run_uid: str = "",
    source: Source = "file",
    user: str = "",
    planner: Planner | None = None,
) -> Sequence[AdmissionResponse]:
    """Check every document of a text.

    `overrides` are those of `--set path=value`. `params` are values for `dag.params`, checked
    against what the document declares; `variables` is what templates see besides (`run_id`,
    `logical_date`, ...); `runtime` goes before the document's, `shown_on` too, for who only looks: what of the names is
    wrong only there does not stop a job that goes elsewhere. `look_up`: whether what is kept elsewhere, environments in their
    storage and saved networks in the store, may be asked for; what is not is looked up when the job starts. `look_up_age`: how many seconds ago an environment may have been
    looked up by this process, for who checks a text again and again while it is typed. `run_uid` is not
    empty when the job is about to run: then it must be complete, with a value for each parameter and a command or an image. `source="form"` is text from a trigger
    form: it names no files of the server and gets no rights over nodes. `user` is what the
    `job_policy` hook is told. `planner` plans the jobs that ask for it; without one, nothing is
    planned. It may raise RuntimeUnavailable.
    """
    try:
        settings = load_settings()
    except ValueError as error:
        broken = Problem(code="not_allowed", field="[training]", message=str(error))
        return (AdmissionResponse(path=path, problems=(broken,), warnings=()),)
    request = AdmissionRequest(
        base_dir="" if source == "form" else base_dir,
        params=params or {},
        variables=variables or {},
        runtime=runtime,
        shown_on=shown_on,
        fetch=fetch,
        starts=bool(run_uid),
        looks_up=look_up,
        look_up_age=look_up_age,
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


def check_unresolved(
    documents: Sequence[ParsedDocument], *, params: Mapping[str, Any]
) -> Sequence[AdmissionResponse]:
    """Check documents that start elsewhere: as written, and the values for their parameters."""
    return [
        _answer(
            document,
            [*document.problems, *(parameter_values(job, params)[1] if job is not None else ())],
            document.warnings,
        )
        for document in documents
        for job in (document.job,)
    ]


def _check(document: ParsedDocument, request: AdmissionRequest) -> AdmissionResponse:
    """Return the answer for one document: all its mistakes from every room."""
    problems = list(document.problems)
    warnings = list(document.warnings)
    job = document.job
    if job is None:
        if not overflows(problems):
            problems += _in_the_draft(document, request)
        return _answer(document, problems, warnings)
    values, mistakes = request.values_for(job)
    problems += mistakes
    runtime = request.runtime_of(job)
    if not is_runtime(runtime):
        problems.append(_no_runtime(runtime))
        return _answer(document, problems, warnings)
    oversized = _oversized(job, request.settings.max_replicas)
    if oversized:
        return _answer(document, [*problems, *oversized], warnings)
    variables = {**request.variables, "params": values}
    admitted, mistakes = _trainer(job, request)
    problems += mistakes
    network = admitted.resolved if admitted else None
    problems += model_problems(job.spec.plan, network)
    job = with_network(job, network)
    try:
        laid = make_layout(_started(job), document, request, runtime=runtime, variables=variables)
        if job.spec.plan.model is not None:
            ready = request.planner is not None and not (problems or laid.problems)
            planned = request.planner(job, laid.resolved) if request.planner and ready else None
            if planned is not None:
                job = planned.sized(job)
                problems += [*check(job.spec, document.raw), *planned.refused(job)]
                laid = make_layout(
                    _started(job), document, request, runtime=runtime, variables=variables
                )
                laid = replace(laid, resolved=planned.equipped(laid.resolved))
            elif not ready:
                problems += _unplannable(job, laid.resolved)
    except InputError as error:
        problems += _of_the_job(error, job)
        return _answer(document, problems, warnings)
    problems += [*laid.problems, *check_log_patterns(job.spec.logs.patterns)]
    if job.spec.trainer is not None:
        from airflow_training.admission.trainer.job import missing_ranks

        problems += missing_ranks(job, laid.resolved)
    if admitted is not None:
        laid = replace(laid, resolved=admitted.equipped(laid.resolved))
    warnings += [
        *laid.warnings,
        *_not_followed(job, laid.resolved),
        *growth_warnings(laid.resolved),
    ]
    if request.starts and not problems:
        problems += check_rendering(laid.resolved)
    answer = _answer(document, problems, warnings)
    return answer if answer.problems else replace(answer, layout=laid)


def _started(job: TrainingJob) -> TrainingJob:
    """Return the job with the command of ours, where its plan or its trainer starts the training."""
    if job.spec.trainer is not None:
        from airflow_training.admission.trainer.job import trainer_job

        return trainer_job(job)
    if job.spec.plan.engine is None:
        return job
    # ast and the planner's base: only where it is asked for
    from airflow_training.admission.plan.engine import engine_job

    return engine_job(job)


def _trainer(
    job: TrainingJob, request: AdmissionRequest
) -> tuple[AdmittedTrainer | None, list[Problem]]:
    """Return what instances get of a network that is trained without a script; None where there is none, or a mistake."""
    if job.spec.trainer is None:
        return None, []
    if job.spec.trainer.network.name is not None and not request.looks_up:
        return None, []
    # the catalogue of layers: only where there is a network
    from airflow_training.admission.trainer.job import admit_trainer

    return admit_trainer(job, base_dir=request.base_dir, values=request.values_for(job)[0])


def _no_runtime(name: str) -> Problem:
    return Problem(
        code="not_allowed",
        field="spec.runtime.name",
        value=name,
        message=f"there is no runtime '{name}'",
        allowed=runtime_names(),
    )


def _oversized(job: TrainingJob, most: int) -> list[Problem]:
    """Return `out_of_range` for more instances than this deployment lets a job have."""
    sizes = [max(role.replicas, role.max_replicas or 0) for role in job.spec.roles]
    if sum(sizes) <= most:
        return []
    largest = sizes.index(max(sizes))
    role = job.spec.roles[largest]
    key = "replicas" if role.replicas == sizes[largest] else "maxReplicas"
    return [
        Problem(
            code="out_of_range",
            field=f"spec.roles[{largest}].{key}",
            value=sizes[largest],
            message=f"the job has up to {counted(sum(sizes), 'instance')}, at most {most} are allowed",
            hint="an administrator may raise [training] max_replicas",
        )
    ]


def _unplannable(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return what of a plan can be seen to be wrong without a search."""
    from airflow_training.admission.plan import (
        step as planning,  # numpy: only where there is a plan
    )

    return planning.check_plan(job, resolved)


def _not_followed(job: TrainingJob, resolved: ResolvedJob) -> list[Problem]:
    """Return a warning where a plan that is to follow its cluster cannot, and nobody may expect that."""
    plan = job.spec.plan
    if plan.model is None or plan.replan == "Never":
        return []
    # numpy: only where there is a plan
    from airflow_training.admission.plan.follow import replan_obstacle

    why = replan_obstacle(plan, resolved)
    if not why or "replan" not in plan.model_fields_set:
        return []
    return [
        Problem(
            code="not_supported",
            field="spec.plan.replan",
            value=plan.replan,
            message=f"has no effect: {why}",
            hint="replan: Never says that it is meant to stay",
        )
    ]


def _answer(
    document: ParsedDocument, problems: Sequence[Problem], warnings: Sequence[Problem]
) -> AdmissionResponse:
    return AdmissionResponse(
        path=document.path,
        problems=with_lines(distinct(problems), document.lines),
        warnings=with_lines(warnings, document.lines),
        job=document.job,
    )


def _in_the_draft(document: ParsedDocument, request: AdmissionRequest) -> list[Problem]:
    """Return what the framework refuses in a document whose fields could not all be read.

    So a person who mistyped a key learns of a reserved variable in the same answer.
    """
    from pydantic import ValidationError

    from airflow_training.documents.draft import find_further

    def look(job: TrainingJob) -> list[Problem]:
        try:
            facts = _facts_of(request.runtime_of(job))
            found = judge(job, request.framework_of(job), runtime=facts)[1]
            found += _trainer(job, request)[1]
            return [*found, *check_log_patterns(job.spec.logs.patterns)]
        except InputError as error:
            return _of_the_job(error, job)

    try:
        TrainingJob.__pydantic_validator__.validate_python(
            document.raw, by_alias=True, by_name=False
        )
    except ValidationError as error:
        return find_further(TrainingJob, document.raw, error, look)
    return []


def _facts_of(runtime: str) -> RuntimeFacts:
    """Return what is known of a runtime; of a name that none has, the name."""
    return adapter_of(runtime).facts if is_runtime(runtime) else RuntimeFacts(name=runtime)


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

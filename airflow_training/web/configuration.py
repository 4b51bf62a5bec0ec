"""What a run was configured with: its document, and for each field who gave the value. Opens no store."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, Field

from airflow_training.admission.launch import describe_start
from airflow_training.admission.single import single_text
from airflow_training.builtin_runtimes import HERE
from airflow_training.documents.expressions import named_params
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.loading import dump_yaml
from airflow_training.documents.parsing import TrainingJob, parse_data
from airflow_training.documents.paths import format_path
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.text import value_text
from airflow_training.errors import InputError, TrainingError
from airflow_training.frameworks.defaults import list_defaults
from airflow_training.frameworks.registry import load_for
from airflow_training.state.database import clean
from airflow_training.state.records import RunState

__all__ = ["ConfigurationAnswer", "FieldAnswer", "configuration", "field_answers"]


_LONGEST_TEXT = 500


class FieldAnswer(BaseModel):
    """A field that need not be written, with the value it had."""

    field: str
    value: str
    """As it would stand in a document."""
    origin: str = Field(alias="from")
    """`user`, `framework` or `airflow-training`, as `explain` says it, or whatever of the run took its place; of what the
    script itself was set to, who in it told: `argparse`, a dataclass, `torch.optim.AdamW`."""


class SingleOffer(BaseModel):
    """The job as one process of one machine."""

    document: str
    """Empty: the job makes no sense alone."""
    why: str
    """Why it makes none."""


class ConfigurationAnswer(BaseModel):
    document: str
    """As it ran, in YAML."""
    draft: str
    """What another run begins with: the document, the values of this run's parameters as its defaults."""
    single: SingleOffer
    has_package: bool
    """The job trains a network, which can be had as a folder that runs without this package."""
    written: dict[str, str]
    """What the document says, by field; as it would stand there."""
    defaults: list[FieldAnswer]
    problem: str
    """Why nobody can tell the fields any more; empty: they are told."""


def configuration(
    state: RunState, *, software: Mapping[InstanceKey, Mapping[str, Any]] | None = None
) -> ConfigurationAnswer:
    """Configuration of a run and the origin of each field. May read the file of the job's framework.

    `software`: the records in which instances have told what their training was set to; the first one counts.
    """
    told, problem = list[FieldAnswer](), ""
    try:
        told = field_answers(state)
    except TrainingError as error:
        problem = f"what was filled in cannot be told any more: {error}"
    draft = dump_yaml(_with_parameters(state.job))
    return ConfigurationAnswer(
        document=dump_yaml(dict(state.job.document)),
        draft=draft,
        single=_single(draft, base_dir=state.job.base_dir),
        has_package=state.job.trainer is not None,
        written={format_path(path): value_text(each) for path, each in _leaves(state.job.document)},
        defaults=[*told, *_script_parameters(software or {})],
        problem=problem,
    )


def _script_parameters(software: Mapping[InstanceKey, Mapping[str, Any]]) -> Iterator[FieldAnswer]:
    """Yield what a script was set to. Instances write this: what is no text or value is left out."""
    told: Any = next(
        (software[key]["parameters"] for key in sorted(software) if "parameters" in software[key]),
        {},
    )
    for source, values in told.items() if isinstance(told, Mapping) else ():
        for name, value in values.items() if isinstance(values, Mapping) else ():
            yield FieldAnswer.model_validate(
                {
                    "field": clean(name),
                    "value": clean(value_text(value)[:_LONGEST_TEXT]),
                    "from": clean(source[:_LONGEST_TEXT]),
                }
            )


def _leaves(
    value: object, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], object]]:
    """Yield every value that holds no other field, with the path to it."""
    if isinstance(value, Mapping) and value:
        for name, each in value.items():
            yield from _leaves(each, (*path, str(name)))
    elif isinstance(value, list) and any(isinstance(each, Mapping) for each in value):
        for index, each in enumerate(value):
            yield from _leaves(each, (*path, index))
    else:
        yield path, value


def _with_parameters(job: ResolvedJob) -> Mapping[str, Any]:
    """Return the document with what the run was given for its parameters as their defaults."""
    written = parse_data(dict(job.document))[0]
    given = job.variables.get("params") or {}
    if written is None or not given:
        return job.document
    document = copy.deepcopy(dict(job.document))
    declared = written.spec.dag.params if written.spec.dag else {}
    used = {*declared, *named_params(job.document)}  # what else was given changed nothing
    for name, value in given.items():
        if name in used and (name not in declared or declared[name].default != value):
            dag = document["spec"]["dag"] = document["spec"].get("dag") or {}
            params = dag["params"] = dag.get("params") or {}
            params[name] = {**(params.get(name) or {}), "default": value}
    return document


def _single(document: str, *, base_dir: str) -> SingleOffer:
    try:
        text = single_text(document, path="", base_dir=base_dir, fetch=False)
    except TrainingError as error:
        said = error.problems[0].message if isinstance(error, InputError) else str(error)
        return SingleOffer(document="", why=said)
    return SingleOffer(document=text, why="")


def field_answers(state: RunState) -> list[FieldAnswer]:
    """Return every field with a default, and what else a run was given, with its value in this run.

    Raises InputError where today's checks refuse the document, or its framework is gone.
    """
    job = state.job
    written, _, problems, _ = parse_data(dict(job.document))
    if written is None or problems:
        raise InputError(problems=problems)
    if [role.name for role in written.spec.roles if role.name not in state.ledger.roles]:
        raise TrainingError("the run has other roles than its document")
    framework = load_for(written, base_dir=job.base_dir, fetch=False).framework.spec
    told = {
        entry["field"]: (entry["value"], entry["from"])
        for entry in list_defaults(written, job, framework=framework)
    }
    for name in framework.parameters:  # as it was then: the framework may say otherwise by now
        field = f"spec.parameters.{name}"
        if field in told and name in job.parameters:
            told[field] = (job.parameters[name], told[field][1])
        else:
            told.pop(field, None)
    told.update((field, (value, origin)) for field, value, origin in _given(state, written))
    return [
        FieldAnswer.model_validate({"field": field, "value": value_text(value), "from": origin})
        for field, (value, origin) in told.items()
    ]


def _given(state: RunState, written: TrainingJob) -> Iterator[tuple[str, object, str]]:
    """Yield what the run has otherwise than document and framework say, as far as the store knows."""
    job, spec = state.job, written.spec
    planned: Collection[str] = job.plan.applied_replicas if job.plan else ()
    for position, role in enumerate(spec.roles):
        wanted, made = state.ledger.roles[role.name].desired, job.role(role.name).replicas
        if wanted != made:
            yield f"spec.roles[{position}].replicas", wanted, "scale"
        elif role.name in planned:
            yield f"spec.roles[{position}].replicas", made, "plan"
    for name in sorted(job.plan.applied_env) if job.plan else ():
        for value in {each.env[name]: None for each in job.roles if name in each.env}:
            yield f"spec.env.{name}", value, "plan"
    if spec.runtime.name not in (None, job.runtime):
        yield "spec.runtime.name", job.runtime, "command line"
    elif spec.runtime.name is None and job.runtime != HERE:
        typed = state.record.key.source == "cli"
        origin = "command line or deployment" if typed else "deployment"
        yield "spec.runtime.name", job.runtime, origin
    if job.active_deadline_seconds != spec.active_deadline_seconds:
        yield "spec.activeDeadlineSeconds", job.active_deadline_seconds, "deployment"
    if start := describe_start(job):
        yield "starts from", start, "spec.checkpoint.resume"
    declared = spec.dag.params if spec.dag else {}
    for name, value in (job.variables.get("params") or {}).items():
        param = declared.get(name)
        own = param is not None and param.default == value
        field = format_path(("spec", "dag", "params", name))
        yield field, value, "user" if own else "parameters"

"""Options that many commands share, and picking the one job to work on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.output import OutputFormat, fail
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.admission.check import AdmissionResponse
    from airflow_training.documents.parsing import ParsedDocument

__all__ = [
    "JobOption",
    "OutputOption",
    "ParamOption",
    "SetOption",
    "only_job",
    "parse_params",
    "run_variables",
    "unknown_params",
]

OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="How to print the result on stdout.")
]
ParamOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param", "-p", metavar="NAME=VALUE", help="A parameter of the job (YAML value)."
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set", metavar="PATH=VALUE", help="Change the document: spec.roles.worker.replicas=4."
    ),
]
JobOption = Annotated[
    str, typer.Option("--job", help="Name of the job, where the file holds several.")
]


def parse_params(pairs: Sequence[str] | None) -> Mapping[str, Any]:
    """Return name -> value of `name=value` pairs, values read as YAML; raises InputError."""
    from airflow_training.documents.loading import load_documents

    found: dict[str, Any] = {}
    problems: list[Problem] = []
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        loaded = load_documents(value)
        if not equals or not name:
            problems.append(_no_param(pair, f"{pair!r} is no NAME=VALUE", hint="--param lr=0.1"))
        elif len(loaded) > 1 or any(each.problems for each in loaded):
            message = f"{name}: {value!r} is no YAML value"
            problems.append(_no_param(value, message, hint="quote it"))
        else:
            found[name] = loaded[0].data if loaded else None
    if problems:
        raise InputError(problems=problems)
    return found


def _no_param(value: str, message: str, *, hint: str) -> Problem:
    return Problem(code="not_allowed", field="--param", value=value, message=message, hint=hint)


def unknown_params(
    checked: Iterable[AdmissionResponse | ParsedDocument], given: Iterable[str]
) -> list[Problem]:
    """Return a mistake for each `--param` that no job declares or names: it would change nothing.

    None where a part of a document cannot be read: it may name them.
    """
    from airflow_training.documents.expressions import named_params
    from airflow_training.documents.pods import MALFORMED

    known: set[str] = set()
    for each in checked:
        if each.job is None or any(mistake.code in MALFORMED for mistake in each.problems):
            return []
        known |= named_params(each.job.to_dict())
        known |= set(each.job.spec.dag.params if each.job.spec.dag else ())
    return [
        Problem(
            code="bad_parameter",
            field="--param",
            value=name,
            message=f"the job has no parameter {name!r}",
            allowed=sorted(known),
            hint=did_you_mean(name, known),
        )
        for name in given
        if name not in known
    ]


def only_job(
    checked: Sequence[AdmissionResponse], *, params: Iterable[str], name: str, path: str
) -> AdmissionResponse:
    """Return the one job to work on; raises InputError with all mistakes, also of `params`."""
    unknown = unknown_params(checked, params)
    problems = [problem for each in checked for problem in each.problems]
    if name:
        named = [each for each in checked if each.resolved and each.resolved.name == name]
        if named:
            checked, problems = named, []
    problems += unknown
    if problems:
        raise InputError(problems=problems, path=path)
    names = [each.resolved.name for each in checked if each.resolved is not None]
    if name and name not in names:
        raise fail("--job", f"{path} holds no job called {name!r}", value=name, allowed=names)
    if len(names) != 1:
        raise fail("--job", f"{path} holds {len(names)} jobs: choose one", allowed=names)
    return checked[0]


def run_variables(run_id: str) -> Mapping[str, Any]:
    """Return what template expressions see of a run that starts now; its dates are that moment."""
    now = datetime.now(tz=timezone.utc).isoformat(timespec="seconds")
    return {
        "run_id": run_id,
        "logical_date": now,
        "data_interval_start": now,
        "data_interval_end": now,
        "triggering_assets": [],
    }

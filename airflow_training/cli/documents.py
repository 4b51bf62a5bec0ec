"""Options that many commands share, and picking the one job to work on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.builtin_runtimes import OURS
from airflow_training.cli.output import OutputFormat, fail
from airflow_training.documents.paths import format_path
from airflow_training.documents.spelling import did_you_mean
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.admission.check import AdmissionResponse

__all__ = [
    "CsvOption",
    "FileArgument",
    "GivenParams",
    "JobOption",
    "OutputOption",
    "ParamOption",
    "RuntimeOption",
    "SetOption",
    "only_job",
    "parse_params",
    "run_variables",
]

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A job file, YAML or JSON.")]
OutputOption = Annotated[
    OutputFormat, typer.Option("--output", "-o", help="How to print the result on stdout.")
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print a table for spreadsheets.")]
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
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help=f"Instead of the document's: {' or '.join(OURS)}.")
]


@dataclass(frozen=True, slots=True)
class GivenParams:
    """What `--param` gave, and what of it cannot be understood."""

    values: Mapping[str, Any]
    problems: Sequence[Problem]
    illegible: Collection[str]
    """Names with a value that is no YAML."""

    def check(self, checked: Sequence[AdmissionResponse], *, path: str | Path) -> None:
        """Raise InputError with every mistake of `--param`, and of the jobs beside them.

        Says nothing where only the jobs have mistakes: the caller tells those.
        """
        problems = self.mistakes(checked)
        if problems:
            problems += [problem for each in checked for problem in self.without_missing(each)]
            raise InputError(problems=problems, path=str(path))

    def mistakes(self, checked: Sequence[AdmissionResponse]) -> list[Problem]:
        """Return every mistake of `--param` itself."""
        return [*self.problems, *self._unknown(checked)]

    def without_missing(self, checked: AdmissionResponse) -> list[Problem]:
        """Return the mistakes of a job, less the values that were given and cannot be read."""
        missing = {format_path(("params", name)) for name in self.illegible}
        return [
            problem
            for problem in checked.problems
            if problem.code != "missing" or problem.field not in missing
        ]

    def _unknown(self, checked: Sequence[AdmissionResponse]) -> list[Problem]:
        """Return a problem for each name that no job declares or uses: it would change nothing.

        None where a part of a document cannot be read: it may name them.
        """
        from airflow_training.documents.expressions import named_params
        from airflow_training.documents.pods import MALFORMED

        known: set[str] = set()
        for each in checked:
            if each.job is None or any(mistake.code in MALFORMED for mistake in each.problems):
                return []
            document = each.resolved.document if each.resolved else each.job.to_dict()
            known |= named_params(document)
            known |= set(each.job.spec.dag.params if each.job.spec.dag else ())
        return [
            Problem(
                code="bad_parameter",
                field="--param",
                value=name,
                message=f"the job has no parameter {name!r}",
                allowed=sorted(known),
                hint=did_you_mean(name, known)
                or f"declare it in spec.dag.params, or name it in the document: {{{{ params.{name} }}}}",
            )
            for name in self.values
            if name not in known
        ]


def parse_params(pairs: Sequence[str] | None) -> GivenParams:
    """Parameters from `name=value` pairs, values read as YAML."""
    from airflow_training.documents.loading import load_documents

    values: dict[str, Any] = {}
    problems: list[Problem] = []
    illegible: list[str] = []
    for pair in pairs or ():
        name, equals, value = pair.partition("=")
        loaded = load_documents(value)
        if not equals or not name:
            problems.append(_no_param(pair, f"{pair!r} is no NAME=VALUE", hint="--param lr=0.1"))
        elif len(loaded) > 1 or any(each.problems for each in loaded):
            message = f"{name}: {value!r} is no YAML value"
            problems.append(_no_param(value, message, hint="quote it"))
            illegible.append(name)
        else:
            values[name] = loaded[0].data if loaded else None
    return GivenParams(values, problems, illegible)


def _no_param(value: str, message: str, *, hint: str) -> Problem:
    return Problem(code="not_allowed", field="--param", value=value, message=message, hint=hint)


def only_job(checked: Sequence[AdmissionResponse], *, name: str, path: str) -> AdmissionResponse:
    """Return the one job to work on; raises InputError with all mistakes."""
    problems = [problem for each in checked for problem in each.problems]
    if name:
        named = [each for each in checked if each.resolved and each.resolved.name == name]
        if named:
            checked, problems = named, []
    if problems:
        raise InputError(problems=problems, path=path)
    names = [each.resolved.name for each in checked if each.resolved is not None]
    if name and name not in names:
        raise fail("--job", f"{path} holds no job called {name!r}", value=name, allowed=names)
    if len(names) != 1:
        raise fail("--job", f"{path} holds {len(names)} jobs: choose one", allowed=names)
    return checked[0]


def run_variables(run_id: str) -> Mapping[str, Any]:
    """Template variables of a run that starts now; its dates are that moment."""
    now = datetime.now(tz=timezone.utc).isoformat(timespec="seconds")
    return {
        "run_id": run_id,
        "logical_date": now,
        "data_interval_start": now,
        "data_interval_end": now,
        "triggering_assets": [],
    }

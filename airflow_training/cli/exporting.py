"""`export`: the job of a run as a file that runs again, or a job file as a document of another system."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.context import open_store
from airflow_training.cli.importing import print_report
from airflow_training.cli.output import next_step, note, print_json, problem_json
from airflow_training.errors import InputError, Problem
from airflow_training.interchange.targets import ExportTarget

if TYPE_CHECKING:
    from airflow_training.interchange.exporting import ExportedDocument

__all__ = ["ExportFormat", "export"]


class ExportFormat(str, Enum):
    """How a document is written."""

    yaml = "yaml"
    json = "json"


def export(
    what: Annotated[
        str, typer.Argument(metavar="RUN | FILE", help="A run; with --as, a job file.")
    ],
    target: Annotated[
        ExportTarget | None,
        typer.Option("--as", help="Print a job file as a document of another system."),
    ] = None,
    every: Annotated[
        bool, typer.Option("--all", help="With --as, also list the fields that were kept.")
    ] = False,
    output: Annotated[
        ExportFormat, typer.Option("--output", "-o", help="How to write the document.")
    ] = ExportFormat.yaml,
) -> None:
    """Print the job of a run as a document that runs again, or a job file as one of another system.

    With --as, the report on stderr says what became of every field. Exit 1 when a field was refused, 2 for bad input.
    """
    if target is not None:
        _export_file(what, target.value, every=every, as_json=output is ExportFormat.json)
        return
    store = open_store()
    record = store.find_run(what)
    document = dict(store.job(record.uid).document)
    if output is ExportFormat.json:
        print_json(document)
    else:
        from airflow_training.documents.loading import dump_yaml

        print(dump_yaml(document), end="")
    next_step("run", "--from-run", record.key.run_id)


def _export_file(path: str, target: str, *, every: bool, as_json: bool) -> None:
    from airflow_training.documents.loading import read_file
    from airflow_training.interchange.exporting import export_text

    text = read_file(path)
    errors = _mistakes(text)
    documents: Sequence[ExportedDocument] = () if errors else export_text(text, target, path)
    errors += [problem for each in documents for problem in each.problems]
    if as_json:
        answers: list[Mapping[str, Any]] = [
            {**each.report.to_json(), "text": each.text} for each in documents
        ]
        print_json(
            {"path": path, "errors": [problem_json(e) for e in errors], "documents": answers}
        )
    else:
        for each in documents:
            if not each.problems:
                print_report(each.report, path=path, every=every)
        print("---\n".join(each.text for each in documents if each.text), end="")
        for problem in errors:
            note(f"error: {path}: {problem}")
    if errors:
        raise typer.Exit(2)
    if any(each.report.of("refused") for each in documents):
        raise typer.Exit(1)


def _mistakes(text: str) -> list[Problem]:
    """Return the mistakes of a job file: what is not valid here means nothing elsewhere."""
    from airflow_training.admission.check import check_text

    try:
        return [problem for checked in check_text(text) for problem in checked.problems]
    except InputError as error:
        return list(error.problems)

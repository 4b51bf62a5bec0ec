"""`import`: jobs of other systems as our documents, with a report of what became of every field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_training.cli.documents import OutputOption
from airflow_training.cli.output import (
    OutputFormat,
    note,
    print_json,
    print_warnings,
    problem_json,
    table_lines,
)
from airflow_training.documents.text import counted, value_text
from airflow_training.errors import InputError, Problem

if TYPE_CHECKING:
    from airflow_training.interchange.importing import ImportedDocument
    from airflow_training.interchange.report import LossReport

__all__ = ["import_jobs", "print_report"]


def import_jobs(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE... | -- COMMAND...",
            help="Jobs of other systems, YAML or JSON, and batch scripts; or a command line, as torchrun train.py.",
        ),
    ],
    every: Annotated[
        bool, typer.Option("--all", help="Also list the fields that were kept as they are.")
    ] = False,
    output: OutputOption = OutputFormat.table,
) -> None:
    """Print jobs of other systems as job files.

    The report on stderr says what became of every field. Exit 1 when a field was refused, 2 for bad input.
    """
    table = output is OutputFormat.table
    command = _command(files)
    if command is not None:
        answers = [_answer(files[0], [command], [], table=table, every=every)]
    else:
        answers = _files(files, table=table, every=every)
    documents = [each for answer in answers for each in answer["documents"]]
    if table:
        print("---\n".join(each["text"] for each in documents if each["text"]), end="")
    else:
        print_json({"files": answers})
    if any(answer["errors"] for answer in answers):
        raise typer.Exit(2)
    if any(each["counts"]["refused"] for each in documents):
        raise typer.Exit(1)


def _command(words: Sequence[str]) -> ImportedDocument | None:
    """Return what a command line becomes; None: the words are files."""
    from airflow_training.interchange.importing import import_command

    return None if Path(words[0]).exists() else import_command(words)


def _text(path: str, errors: list[Problem]) -> str | None:
    from airflow_training.documents.loading import read_file

    try:
        return read_file(path)
    except InputError as error:
        errors += error.problems
        return None


def _files(paths: Sequence[str], *, table: bool, every: bool) -> list[dict[str, Any]]:
    """Return the answer about each file; what one names may stand in another."""
    from airflow_training.interchange.importing import import_files

    errors: dict[str, list[Problem]] = {path: [] for path in paths}
    read = {path: _text(path, errors[path]) for path in paths}
    texts = {path: text for path, text in read.items() if text is not None}
    found = dict(zip(texts, import_files([(texts[path], path) for path in texts]), strict=True))
    return [
        _answer(path, found.get(path, ()), problems, table=table, every=every)
        for path, problems in errors.items()
    ]


def _answer(
    path: str,
    documents: Sequence[ImportedDocument],
    errors: list[Problem],
    *,
    table: bool,
    every: bool,
) -> dict[str, Any]:
    """Return the answer about one file, and print its report."""
    answers: list[dict[str, Any]] = []
    for each in documents:
        mistakes, warnings = _checked(each)
        errors += mistakes
        text = "" if mistakes else each.text
        answers.append({**each.report.to_json(), "text": text})
        if table:
            print_warnings(warnings, path=path)
            if not mistakes:
                print_report(each.report, path=path, every=every)
    if not errors and not any(each.is_job for each in documents):
        errors.append(Problem(code="missing", field="", message="the file holds no job"))
    if table:
        for problem in errors:
            note(f"error: {path}: {problem}")
    return {
        "path": path,
        "errors": [problem_json(each) for each in errors],
        "documents": answers,
    }


def _checked(imported: ImportedDocument) -> tuple[list[Problem], list[Problem]]:
    """Return mistakes of the source, also those that only show in our document, and warnings of that."""
    from airflow_training.admission.check import check_text

    if imported.problems or not imported.text:
        return list(imported.problems), []
    mistakes: dict[str, Problem] = {}
    warnings: dict[str, Problem] = {}
    for checked in check_text(imported.text):
        for problem in checked.problems:
            # a replicated job that became several roles has its mistakes once
            mistakes.setdefault(problem.message, imported.at_source(problem))
        for problem in checked.warnings:
            warnings.setdefault(problem.message, imported.at_source(problem))
    return list(mistakes.values()), list(warnings.values())


def print_report(report: LossReport, *, path: str, every: bool) -> None:
    """Print on stderr what became of the fields of a document."""
    rows = [
        [
            "" if each.line is None else each.line,
            each.field,
            ("not written: " if each.default else "") + value_text(each.value),
            each.fate,
            "; ".join(part for part in (each.to and f"to {each.to}", each.why) if part),
        ]
        for each in report.fields
        if every or each.fate != "kept" or each.why
    ]
    note(f"{path}: {report.kind} {report.name}: {_counts(report.to_json()['counts'])}")
    if rows:
        columns = ["line", "field", "value", "fate", "what became of it"]
        note("\n".join(table_lines(columns, rows)))


def _counts(counts: Mapping[str, int]) -> str:
    first, *others = counts.items()
    return ", ".join(
        [f"{counted(first[1], 'field')} {first[0]}", *(f"{n} {fate}" for fate, n in others)]
    )

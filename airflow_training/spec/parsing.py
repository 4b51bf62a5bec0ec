"""The entry into the room: text to jobs, with every mistake, its line, and every warning.

    for document in parse(text, "job.yaml"):
        if document.problems: ...       # all of them; document.job may still be there
        resolve(document.job)           # frameworks add their own problems
        line = document.lines.of("spec.roles[0].replicas")

`job` is None exactly when its fields could not be read. It may be there beside problems (an
unknown role, a cycle), so that later checks can add theirs to one answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import ValidationError

from airflow_training.errors import Problem
from airflow_training.spec.loading import Lines, load_documents
from airflow_training.spec.models import TrainingJob

__all__ = ["ParsedDocument", "parse", "parse_data", "with_lines"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDocument:
    """One document of a file after every check that needs neither framework nor runtime."""

    path: str
    index: int
    """Position in the file, from 0."""
    job: TrainingJob | None
    problems: Sequence[Problem]
    """Errors, with lines; empty when valid."""
    warnings: Sequence[Problem]
    lines: Lines
    raw: Any
    """The document as plain data, after overrides."""


def parse(
    text: str,
    path: str = "",
    *,
    overrides: Sequence[str] = (),
    params: Collection[str] | None = None,
) -> list[ParsedDocument]:
    """Return every document of a text; never raises for what a user wrote.

    Args:
        text: YAML or JSON, one or several documents.
        path: shown in answers; `.json` means JSON.
        overrides: `spec.roles.worker.replicas=4`, applied to each document before it is checked.
        params: names of parameters that the caller passes besides those of `dag.params`; then an
            expression that names another one is a mistake. None: not known yet, any may come.
    """
    documents = []
    names: set[str] = set()
    for index, loaded in enumerate(load_documents(text, path)):
        if loaded.data is None:
            job, raw, found, warnings = None, None, list[Problem](), list[Problem]()
        else:
            job, raw, found, warnings = parse_data(loaded.data, overrides=overrides, params=params)
        if job is not None:
            found += _taken_name(job.metadata.name, names)
            names.add(job.metadata.name)
        documents.append(
            ParsedDocument(
                path=path,
                index=index,
                job=job,
                problems=with_lines([*loaded.problems, *found], loaded.lines),
                warnings=with_lines(warnings, loaded.lines),
                lines=loaded.lines,
                raw=raw,
            )
        )
    if not documents:
        empty = Problem(code="missing", field="", message="the file holds no job")
        lines = Lines("", 0)
        documents.append(
            ParsedDocument(
                path=path, index=0, job=None, problems=[empty], warnings=[], lines=lines, raw=None
            )
        )
    return documents


def _taken_name(name: str, names: Collection[str]) -> list[Problem]:
    if name not in names:
        return []
    message = "another job of this file has this name"
    return [Problem(code="duplicate", field="metadata.name", value=name, message=message)]


def parse_data(
    data: Any, *, overrides: Sequence[str] = (), params: Collection[str] | None = None
) -> tuple[TrainingJob | None, Any, list[Problem], list[Problem]]:
    """As `parse`, for one document of plain data; returns job, data, problems, warnings."""
    from airflow_training.spec.checks import check, warnings_of

    problems: list[Problem] = []
    if overrides:
        from airflow_training.spec.overrides import apply_overrides

        data, problems = apply_overrides(data, overrides)
    problems += _missing_head(data)
    try:
        job = TrainingJob.__pydantic_validator__.validate_python(data, by_alias=True, by_name=False)
    except ValidationError as error:
        from airflow_training.spec.draft import further_problems
        from airflow_training.spec.problems import problems_of

        problems += problems_of(error, model=TrainingJob)
        problems += further_problems(data, error, params=params)
        return None, data, problems, []
    problems += check(job, data=data, params=params)
    return job, data, problems, warnings_of(job, data=data)


def with_lines(problems: Iterable[Problem], lines: Lines) -> list[Problem]:
    """Return the problems with the line of their field, in the order of the file.

    A value that was given beside the document (`params.lr`) is on none of its lines.
    """
    placed = [
        problem
        if problem.line is not None or problem.field.startswith("params.")
        else replace(problem, line=lines.of(problem.field))
        for problem in problems
    ]
    return sorted(placed, key=lambda problem: problem.line or 0)


def _missing_head(data: Any) -> list[Problem]:
    """A file says what it is, though a Python constructor need not."""
    if not isinstance(data, Mapping):
        return []
    return [
        Problem(code="missing", field=key, message="is required", allowed=(only,))
        for key, only in (("apiVersion", "airflow-training/v1"), ("kind", "TrainingJob"))
        if key not in data
    ]

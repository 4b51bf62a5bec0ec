"""The entry into the room: `TrainingJob`, and text to jobs with every mistake, its line, and every warning.

    for document in parse(text, "job.yaml"):
        if document.problems: ...       # all of them; document.job may still be there
        resolve(document.job)           # frameworks add their own problems
        line = document.lines.of("spec.roles[0].replicas")

`job` is None exactly when its fields could not be read, or it has too many mistakes. It may be there beside problems (an
unknown role, a cycle), so that later checks can add theirs to one answer.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from airflow_training.documents.base import Model
from airflow_training.documents.loading import (
    FieldLines,
    LoadedDocument,
    dump_yaml,
    load_documents,
    read_file,
)
from airflow_training.documents.models import Metadata, TrainingJobSpec
from airflow_training.documents.problems import overflows, with_lines
from airflow_training.errors import InputError, Problem

__all__ = ["API_VERSION", "ParsedDocument", "TrainingJob", "parse", "parse_data"]

API_VERSION: Literal["airflow-training/v1"] = "airflow-training/v1"


class TrainingJob(Model):
    """A training job: the Python twin of the YAML document, with the same fields in snake_case.

    A mistake is pydantic's ValidationError where one is constructed; `from_file` and `from_text`
    raise InputError with every mistake of the document, its line, and what is allowed. What
    framework and runtime refuse is told by `airflow-training validate` and when a run begins.

    >>> job = TrainingJob(
    ...     metadata={"name": "digits"},
    ...     spec={"framework": "custom", "command": ["true"], "roles": [{"name": "worker"}]},
    ... )
    >>> TrainingJob.from_text(job.to_yaml()) == job
    True
    """

    api_version: Literal["airflow-training/v1"] = API_VERSION
    kind: Literal["TrainingJob"] = "TrainingJob"
    metadata: Metadata
    spec: TrainingJobSpec

    @cached_property
    def folder(self) -> Path | None:
        """The folder of the file it was read from; None where it came from elsewhere."""
        return None

    @classmethod
    def from_file(cls, path: str | Path) -> TrainingJob:
        """Return the only job of a file; raises `InputError` with every mistake found.

        Relative paths in it start from the file's folder, wherever the job is then used.
        """
        job = cls.from_text(read_file(path), path=str(path))
        job.__dict__["folder"] = Path(path).resolve().parent  # no part of the document
        return job

    @classmethod
    def from_text(cls, text: str, *, path: str = "") -> TrainingJob:
        """Return the only job of a YAML or JSON text; raises `InputError`."""
        documents = parse(text, path)
        problems = [problem for document in documents for problem in document.problems]
        if not problems and len(documents) > 1:
            message = f"holds {len(documents)} jobs where one is wanted"
            problems.append(Problem(code="conflict", field="", message=message))
        if problems:
            raise InputError(problems=problems, path=path)
        job = documents[0].job
        assert job is not None, "parse answers a job or a problem"  # noqa: S101 - tells mypy
        return job

    def to_dict(self) -> dict[str, Any]:
        """Return the document as plain JSON data in camelCase: only what the user set."""
        written = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {"apiVersion": self.api_version, "kind": self.kind, **written}

    def to_yaml(self) -> str:
        """Return the document as YAML; `from_text` gives an equal job back."""
        return dump_yaml(self.to_dict())


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedDocument:
    """One document of a file after every check that needs neither framework nor runtime."""

    path: str
    job: TrainingJob | None
    problems: Sequence[Problem]
    """Errors, with lines; empty when valid."""
    warnings: Sequence[Problem]
    lines: FieldLines
    raw: Any
    """The document as plain data, after overrides, without the malformed parts of its pods."""


_NO_JOB = LoadedDocument(
    data=None,
    lines=FieldLines(""),
    problems=(Problem(code="missing", field="", message="the file holds no job"),),
)


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
    for loaded in load_documents(text, path) or (_NO_JOB,):
        if loaded.data is None:
            job, raw, found, warnings = None, None, list[Problem](), list[Problem]()
        else:
            job, raw, found, warnings = parse_data(loaded.data, overrides=overrides, params=params)
        if job is not None:
            found += _duplicate_name(job.metadata.name, names)
            names.add(job.metadata.name)
        documents.append(
            ParsedDocument(
                path=path,
                job=job,
                problems=with_lines([*loaded.problems, *found], loaded.lines),
                warnings=with_lines(warnings, loaded.lines),
                lines=loaded.lines,
                raw=raw,
            )
        )
    return documents


def _duplicate_name(name: str, names: Collection[str]) -> list[Problem]:
    if name not in names:
        return []
    message = "another job of this file has this name"
    return [Problem(code="duplicate", field="metadata.name", value=name, message=message)]


def parse_data(
    data: Any, *, overrides: Sequence[str] = (), params: Collection[str] | None = None
) -> tuple[TrainingJob | None, Any, list[Problem], list[Problem]]:
    """As `parse`, for one document of plain data; returns job, data, problems, warnings."""
    from airflow_training.documents.checks import check, warnings_of
    from airflow_training.documents.pods import check_expansion, without_malformed_pods

    problems: list[Problem] = []
    if overrides:
        from airflow_training.documents.overrides import apply_overrides

        data, problems = apply_overrides(data, overrides, model=TrainingJob)
    problems += [*_missing_head(data), *check_expansion(data)]
    try:
        job = TrainingJob.__pydantic_validator__.validate_python(data, by_alias=True, by_name=False)
    except ValidationError as error:
        from airflow_training.documents.draft import find_further
        from airflow_training.documents.problems import problems_of

        problems += problems_of(error, model=TrainingJob)
        if not overflows(problems):
            problems += find_further(
                TrainingJob, data, error, lambda draft: check(draft.spec, data, params=params)
            )
        return None, without_malformed_pods(data, problems), problems, []
    if not overflows(problems):
        problems += check(job.spec, data, params=params)
    if overflows(problems):
        return None, data, problems, []
    warnings = warnings_of(job.spec, data)
    legible = without_malformed_pods(data, problems)
    if legible is not data:
        job = TrainingJob.__pydantic_validator__.validate_python(
            legible, by_alias=True, by_name=False
        )
    return job, legible, problems, warnings


def _missing_head(data: Any) -> list[Problem]:
    """A file says what it is, though a Python constructor need not."""
    if not isinstance(data, Mapping):
        return []
    return [
        Problem(code="missing", field=key, message="is required", allowed=(only,))
        for key, only in (("apiVersion", "airflow-training/v1"), ("kind", "TrainingJob"))
        if key not in data
    ]

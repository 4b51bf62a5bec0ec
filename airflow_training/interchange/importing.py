"""From the text of a file to our documents, each with its loss report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.loading import LoadedDocument, dump_yaml, load_documents
from airflow_training.documents.paths import format_path, split_path
from airflow_training.documents.problems import with_lines
from airflow_training.errors import Problem
from airflow_training.interchange.accounts import FieldAccounts, SourceField
from airflow_training.interchange.batch_job import translate_job
from airflow_training.interchange.comments import comments_above, with_comments
from airflow_training.interchange.jobset import translate_jobset
from airflow_training.interchange.other_operator_jobs import (
    translate_mpijob,
    translate_paddlejob,
    translate_tfjob,
    translate_xgboostjob,
)
from airflow_training.interchange.pytorchjob import translate_pytorchjob
from airflow_training.interchange.report import FieldFate, LossReport

__all__ = ["FORMATS", "ImportedDocument", "import_text"]

FORMATS: Mapping[tuple[str, str], Callable[[SourceField], dict[str, Any]]] = {
    ("batch/v1", "Job"): translate_job,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): translate_jobset,
    ("kubeflow.org/v1", "MPIJob"): translate_mpijob,
    ("kubeflow.org/v1", "PaddleJob"): translate_paddlejob,
    ("kubeflow.org/v1", "PyTorchJob"): translate_pytorchjob,
    ("kubeflow.org/v1", "TFJob"): translate_tfjob,
    ("kubeflow.org/v1", "XGBoostJob"): translate_xgboostjob,
}
_KINDS = {kind for _, kind in FORMATS}
_READ = tuple(f"{kind} of {version}" for version, kind in FORMATS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    """What came of one document of a file."""

    report: LossReport
    text: str = ""
    """Our document as YAML; empty where the source has mistakes, or is no job."""
    problems: Sequence[Problem] = ()
    """Mistakes of the source, with lines."""
    accounts: FieldAccounts

    def at_source(self, problem: Problem) -> Problem:
        """Return a mistake of our document as one of the source, where it comes from there."""
        loc = self.accounts.origin_of(split_path(problem.field) or ())
        return Problem(
            code=problem.code,
            field=format_path(loc) or problem.field,
            message=problem.message,
            value=problem.value,
            allowed=problem.allowed,
            hint=problem.hint,
            line=self.accounts.lines.of(loc),
        )


def import_text(text: str, path: str = "") -> Sequence[ImportedDocument]:
    """Return every document of a file of another system. Raises nothing for what is in it."""
    return [_import(text, loaded) for loaded in load_documents(text, path)]


def _import(text: str, loaded: LoadedDocument) -> ImportedDocument:
    accounts = FieldAccounts(loaded.data, loaded.lines)
    root = accounts.root
    kind, version = root["kind"].value, root["apiVersion"].value
    translate = FORMATS.get((version, kind)) if isinstance(kind, str) else None
    ours: dict[str, Any] | None = None
    if loaded.problems:
        accounts.problems.extend(with_lines(loaded.problems, loaded.lines))
    elif translate is not None:
        ours = translate(root)
    elif not isinstance(loaded.data, Mapping) or not isinstance(kind, str):
        accounts.mistake((), "missing", "is no document with apiVersion and kind")
    elif kind in _KINDS:
        message = f"a {kind} of {version!r} is not read"
        accounts.mistake(("apiVersion",), "not_allowed", message, allowed=_READ)
    elif kind == "TrainingJob":
        accounts.mistake(("kind",), "not_allowed", "is a document of ours already")
    fields: list[FieldFate] = []
    if not accounts.problems:
        fields = accounts.settle() if ours is not None else [_no_job(root)]
    return ImportedDocument(
        report=LossReport(
            kind=kind if isinstance(kind, str) else "",
            name=str(
                root["metadata"]["name"].value or root["metadata"]["generateName"].value or ""
            ),
            line=loaded.lines.of(()),
            fields=fields,
        ),
        problems=accounts.problems,
        accounts=accounts,
        text=""
        if ours is None or accounts.problems
        else with_comments(
            dump_yaml(ours),
            comments_above(text, loaded.data, loaded.lines),
            accounts.target_of,
        ),
    )


def _no_job(root: SourceField) -> FieldFate:
    return FieldFate(
        field="kind",
        fate="refused",
        value=root["kind"].value,
        line=root.accounts.lines.of(("kind",)),
        why="is no job that can be read here: it stays what it is, and has to be there before the job runs;"
        f" what is read: {', '.join(_READ)}",
    )

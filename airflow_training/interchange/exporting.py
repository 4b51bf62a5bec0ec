"""From the text of a file of ours to documents of other systems, each with its loss report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_training.documents.loading import LoadedDocument, dump_yaml, load_documents
from airflow_training.documents.problems import with_lines
from airflow_training.errors import Problem
from airflow_training.interchange.accounts import FieldAccounts, SourceField
from airflow_training.interchange.comments import comments_above, with_comments
from airflow_training.interchange.export_jobset import export_jobset
from airflow_training.interchange.export_pytorchjob import export_pytorchjob
from airflow_training.interchange.export_sbatch import export_sbatch
from airflow_training.interchange.export_volcano import export_volcano
from airflow_training.interchange.report import LossReport

__all__ = ["TARGETS", "ExportedDocument", "export_text"]

TARGETS: Mapping[str, Callable[[SourceField], dict[str, Any] | str]] = {
    "pytorchjob": export_pytorchjob,
    "jobset": export_jobset,
    "volcano": export_volcano,
    "sbatch": export_sbatch,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedDocument:
    """What came of one document of a file of ours."""

    report: LossReport
    text: str = ""
    """The other system's document; empty where there are mistakes."""
    problems: Sequence[Problem] = ()


def export_text(text: str, target: str, path: str = "") -> Sequence[ExportedDocument]:
    """Return every job of a file of ours as a document of another system; what it is worth is checked before."""
    return [_export(text, loaded, TARGETS[target]) for loaded in load_documents(text, path)]


def _export(
    text: str, loaded: LoadedDocument, write: Callable[[SourceField], dict[str, Any] | str]
) -> ExportedDocument:
    accounts = FieldAccounts(loaded.data, loaded.lines)
    root = accounts.root
    theirs: dict[str, Any] | str = ""
    if loaded.problems:
        accounts.problems.extend(with_lines(loaded.problems, loaded.lines))
    elif root["kind"].value != "TrainingJob":
        accounts.mistake(("kind",), "not_allowed", "is no TrainingJob")
    else:
        theirs = write(root)
    problems = accounts.problems
    report = LossReport(
        kind=str(root["kind"].value or ""),
        name=str(root["metadata"]["name"].value or ""),
        line=loaded.lines.of(()),
        fields=[] if problems else accounts.settle(),
    )
    if problems:
        return ExportedDocument(report=report, problems=problems)
    if isinstance(theirs, dict):
        comments = comments_above(text, loaded.data, loaded.lines)
        theirs = with_comments(dump_yaml(theirs), comments, accounts.target_of)
    return ExportedDocument(report=report, text=theirs)

"""From the texts of files to our documents, each with its loss report."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from airflow_training.documents.loading import LoadedDocument, dump_yaml, load_documents
from airflow_training.documents.paths import Loc, format_path, split_path
from airflow_training.documents.problems import with_lines
from airflow_training.errors import Problem
from airflow_training.interchange.accounts import FieldAccounts, SourceField
from airflow_training.interchange.batch_job import translate_job
from airflow_training.interchange.comments import comments_above, with_comments
from airflow_training.interchange.frameworkcontroller import translate_framework
from airflow_training.interchange.jobset import translate_jobset
from airflow_training.interchange.launchers import launcher_of
from airflow_training.interchange.other_operator_jobs import (
    translate_mpijob,
    translate_paddlejob,
    translate_tfjob,
    translate_xgboostjob,
)
from airflow_training.interchange.pytorchjob import translate_pytorchjob
from airflow_training.interchange.rayjob import translate_rayjob
from airflow_training.interchange.report import FieldFate, LossReport
from airflow_training.interchange.sbatch import is_script, read_script
from airflow_training.interchange.trainjob import (
    runtime_name,
    translate_training_runtime,
    translate_trainjob,
)
from airflow_training.interchange.volcano import translate_volcano

__all__ = ["FORMATS", "ImportedDocument", "import_command", "import_files", "import_text"]

_TRAINER = "trainer.kubeflow.org/v1alpha1"
FORMATS: Mapping[tuple[str, str], Callable[[SourceField], dict[str, Any] | None]] = {
    ("batch.volcano.sh/v1alpha1", "Job"): translate_volcano,
    ("batch/v1", "Job"): translate_job,
    ("frameworkcontroller.microsoft.com/v1", "Framework"): translate_framework,
    ("jobset.x-k8s.io/v1alpha2", "JobSet"): translate_jobset,
    ("kubeflow.org/v1", "MPIJob"): translate_mpijob,
    ("kubeflow.org/v1", "PaddleJob"): translate_paddlejob,
    ("kubeflow.org/v1", "PyTorchJob"): translate_pytorchjob,
    ("kubeflow.org/v1", "TFJob"): translate_tfjob,
    ("kubeflow.org/v1", "XGBoostJob"): translate_xgboostjob,
    ("ray.io/v1", "RayJob"): translate_rayjob,
    (_TRAINER, "ClusterTrainingRuntime"): translate_training_runtime,
    (_TRAINER, "TrainJob"): lambda job: translate_trainjob(job, None),
    (_TRAINER, "TrainingRuntime"): translate_training_runtime,
}
_KINDS = {kind for _, kind in FORMATS}
_READ = (
    *(f"{kind} of {version}" for version, kind in FORMATS),
    "Slurm batch scripts",
    "command lines of launchers",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedDocument:
    """What came of one document of a file."""

    report: LossReport
    text: str = ""
    """Our document as YAML; empty where the source has mistakes, or is no job."""
    problems: Sequence[Problem] = ()
    """Mistakes of the source, with lines."""
    accounts: FieldAccounts
    is_job: bool = True
    """It is of a kind that is read, if nothing else."""

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


@dataclass(slots=True)
class _Translation:
    """One document on its way."""

    accounts: FieldAccounts
    kind: str = ""
    name: str = ""
    line: int | None = None
    ours: dict[str, Any] | None = None
    is_job: bool = True
    translate: Callable[[SourceField], dict[str, Any] | None] | None = None
    """Of its format, where it is a document that is read."""
    comments: dict[Loc, list[str]] = field(default_factory=dict)

    def finish(self) -> ImportedDocument:
        problems = self.accounts.problems
        fields: list[FieldFate] = []
        if not problems:
            fields = self.accounts.settle() if self.is_job else [_no_job(self.accounts.root)]
        return ImportedDocument(
            report=LossReport(kind=self.kind, name=self.name, line=self.line, fields=fields),
            problems=problems,
            accounts=self.accounts,
            is_job=self.is_job,
            text=""
            if self.ours is None or problems
            else with_comments(dump_yaml(self.ours), self.comments, self.accounts.target_of),
        )


def import_text(text: str, path: str = "") -> Sequence[ImportedDocument]:
    """Return every document of a file of another system. Raises nothing for what is in it."""
    return import_files([(text, path)])[0]


def import_files(files: Sequence[tuple[str, str]]) -> Sequence[Sequence[ImportedDocument]]:
    """Return every document of several files, each with its path: one may name what stands in another."""
    read = [
        [_read_script(text, PurePath(path).stem or "job")]
        if is_script(text, path)
        else [_read(text, loaded) for loaded in load_documents(text, path)]
        for text, path in files
    ]
    _translate([each for documents in read for each in documents])
    return [[each.finish() for each in documents] for documents in read]


def _translate(documents: Sequence[_Translation]) -> None:
    """Translate jobs; a runtime of Kubeflow Trainer is a job of its own only where no job names it."""
    runtimes = {
        (each.kind, each.name): each
        for each in documents
        if each.translate is translate_training_runtime
    }
    used: set[tuple[str, str]] = set()
    for each in documents:
        if each.translate is not None and each.kind == "TrainJob" and not each.accounts.problems:
            name = runtime_name(each.accounts.root)
            runtime = runtimes.get(name)
            each.ours = translate_trainjob(
                each.accounts.root, runtime.accounts.root if runtime else None
            )
            used.add(name)
    for each in documents:
        if each.translate is None or each.kind == "TrainJob" or each.accounts.problems:
            continue
        if each.translate is not translate_training_runtime or (each.kind, each.name) not in used:
            each.ours = each.translate(each.accounts.root)


def import_command(words: Sequence[str]) -> ImportedDocument | None:
    """Import a command line of a launcher; None: it calls none."""
    if not launcher_of(words) and words[:1] != ["srun"]:
        return None
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    name = PurePath(scripts[0]).stem if scripts else words[0]
    return _read_script(shlex.join(words), name).finish()


def _read_script(text: str, name: str) -> _Translation:
    found = read_script(text, name)
    return _Translation(
        found.accounts, found.kind, found.name, 1, found.document, comments=found.comments
    )


def _read(text: str, loaded: LoadedDocument) -> _Translation:
    accounts = FieldAccounts(loaded.data, loaded.lines)
    root = accounts.root
    kind, version = root["kind"].value, root["apiVersion"].value
    metadata = root["metadata"]
    found = _Translation(
        accounts,
        kind if isinstance(kind, str) else "",
        str(metadata["name"].value or metadata["generateName"].value or ""),
        loaded.lines.of(()),
    )
    known = isinstance(kind, str) and isinstance(version, str)
    translate = FORMATS.get((version, kind)) if known else None
    if loaded.problems:
        accounts.problems.extend(with_lines(loaded.problems, loaded.lines))
    elif translate is not None:
        found.translate = translate
        found.comments = comments_above(text, loaded.data, loaded.lines)
    elif not isinstance(loaded.data, Mapping) or not isinstance(kind, str):
        accounts.mistake((), "missing", "is no document with apiVersion and kind")
    elif kind in _KINDS:
        message = f"a {kind} of {version!r} is not read"
        accounts.mistake(("apiVersion",), "not_allowed", message, allowed=_READ)
    elif kind == "TrainingJob":
        accounts.mistake(("kind",), "not_allowed", "is a document of ours already")
    found.is_job = translate is not None
    return found


def _no_job(root: SourceField) -> FieldFate:
    return FieldFate(
        field="kind",
        fate="refused",
        value=root["kind"].value,
        line=root.accounts.lines.of(("kind",)),
        why="is no job that can be read here: it stays what it is, and has to be there before the job runs;"
        f" what is read: {', '.join(_READ)}",
    )

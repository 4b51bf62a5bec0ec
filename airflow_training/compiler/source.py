"""Where a job comes from: a file, a document in Python, or a text. Reads and parses, checks no more.

The group is built when a DAG is parsed; `plan` reads the same source again when the run starts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_training.errors import InputError

if TYPE_CHECKING:
    from airflow_training.documents.parsing import TrainingJob

__all__ = ["JobSource", "parse_jobs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSource:
    """One document. `name` picks it in a file that holds several jobs."""

    path: str = ""
    """Absolute; empty for a document that was written in Python."""
    text: str = ""
    """The document itself; empty: read `path`."""
    name: str = ""
    base_dir: str = ""
    """Folder that a relative `workingDir` starts from."""

    @classmethod
    def of(cls, job: Any, *, folder: Path) -> JobSource:
        """Return the source of what the user gave; relative paths start from `folder`.

        `job`: a TrainingJob, its document as a mapping, or the path of a file. `file.yaml#name`
        picks one job of several. Raises InputError for anything else.
        """
        if isinstance(job, str | Path):
            text, _, name = str(job).partition("#")
            path = Path(text).expanduser()
            path = path if path.is_absolute() else folder / path
            return cls(path=str(path), name=name, base_dir=str(path.parent))
        if isinstance(job, Mapping):
            from airflow_training.documents.loading import dump_yaml

            return cls(text=dump_yaml(dict(job)), base_dir=str(folder))
        if hasattr(job, "to_yaml"):
            return cls(text=job.to_yaml(), base_dir=str(job.folder or folder))
        message = "a job is a TrainingJob, a mapping or the path of a file"
        raise InputError.of(code="wrong_type", field="job", message=message, value=repr(job))

    def read(self) -> TrainingJob:
        """Return the job, parsed; raises InputError with every mistake."""
        text = self.text or _read(self.path)
        found = parse_jobs(text, path=self.path)
        if self.name:
            found = [job for job in found if job.metadata.name == self.name]
        if len(found) == 1:
            return found[0]
        names = [job.metadata.name for job in parse_jobs(text, path=self.path)]
        message = (
            f"holds no job called {self.name!r}"
            if self.name
            else f"holds {len(names)} jobs; name one: {Path(self.path).name}#{names[0]}"
        )
        raise InputError.of(
            code="bad_reference", field="", message=message, allowed=names, path=self.path
        )


def parse_jobs(text: str, *, path: str = "") -> Sequence[TrainingJob]:
    """Return every job of a text; raises InputError with every mistake of all of them."""
    from airflow_training.documents.parsing import parse

    documents = parse(text, path)
    problems = [problem for document in documents for problem in document.problems]
    if problems:
        raise InputError(problems=problems, path=path)
    return [document.job for document in documents if document.job is not None]


def _read(path: str) -> str:
    from airflow_training.documents.loading import read_file

    return read_file(path)

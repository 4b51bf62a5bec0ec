"""From a folder of job files to DAGs: the fast path of parsing. Opens no store, checks no cluster.

Two ways lead here. `JobBundle` (in `bundle`) gives each file an import error of its own; the
loader file in `dags/` is for those who cannot configure a bundle.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, get_parsing_context

from airflow_training.compiler.dag import source_to_dag
from airflow_training.compiler.form import job_files
from airflow_training.compiler.source import JobSource, parse_jobs
from airflow_training.errors import InputError

if TYPE_CHECKING:
    from airflow_training.documents.parsing import TrainingJob

__all__ = ["BROKEN", "load_file", "load_folder", "load_stub"]

BROKEN = "broken_job_files"
"""Id of the DAG that tells about job files that cannot be DAGs."""


def load_file(path: str | os.PathLike[str]) -> dict[str, DAG]:
    """Return the DAGs of one job file by their ids; raises InputError with every mistake.

    While a task runs, only its own DAG is built, and `plan` checks the job.
    """
    wanted = get_parsing_context().dag_id
    text = Path(path).read_text(encoding="utf-8")
    several = text.count("kind:") + text.count('"kind"') > 1
    found = {}
    jobs = _checked(text, path=Path(path)) if wanted is None else parse_jobs(text, path=str(path))
    for job in jobs:
        name = job.metadata.name
        if wanted is not None and wanted != name:
            continue
        source = JobSource(
            path=str(path), name=name if several else "", base_dir=str(Path(path).parent)
        )
        try:
            found[name] = source_to_dag(source, job)
        except InputError as error:
            raise InputError(problems=error.problems, path=str(path)) from None
    return found


def _checked(text: str, *, path: Path) -> Sequence[TrainingJob]:
    """Return every job of a text; raises InputError with all that `validate` would say."""
    from airflow_training.admission.check import check_text

    # parsed every minute, by processes that must not wait: environments and networks are looked up when a run starts
    found = check_text(text, path=str(path), base_dir=str(path.parent), look_up=False)
    problems = [problem for each in found for problem in each.problems]
    if problems:
        raise InputError(problems=problems, path=str(path))
    return [each.job for each in found if each.job is not None]


class _BrokenJobFile(DAG):
    """Stands for a job file that is no DAG; Airflow takes what `validate` raises as its error."""

    def validate(self) -> None:
        """Raise InputError, OSError or UnicodeDecodeError."""
        load_file(self.description or "")


def load_stub(path: str) -> dict[str, DAG]:
    """Return the DAGs of the job file that this stub alone stands for, or its import error.

    What is raised here would be told with a traceback; what `DAG.validate` raises is not.
    """
    try:
        return load_file(path)
    except (InputError, OSError, UnicodeDecodeError):
        return {BROKEN: _BrokenJobFile(BROKEN, schedule=None, description=path)}


def load_folder(folder: str | os.PathLike[str]) -> Mapping[str, Any]:
    """Return every good job of a folder as a DAG, and one DAG that tells about the others.

    While a task runs, only files that mention its DAG are read further, and broken ones of
    other DAGs are left alone.
    """
    wanted = get_parsing_context().dag_id
    dags: dict[str, Any] = {}
    origin: dict[str, Path] = {}
    messages = []
    for path in _in_question(Path(folder), wanted):
        try:
            found = load_file(path)
        except (InputError, OSError, UnicodeDecodeError) as error:
            messages.append(str(error) if isinstance(error, InputError) else f"{path}: {error}")
            continue
        for name, dag in found.items():
            if name in origin:
                messages.append(f"{path}: a job called '{name}' is already in {origin[name]}")
            else:
                dags[name], origin[name] = dag, path
    if messages and wanted is None:
        dags[BROKEN] = _broken(messages)
    return dags


def _broken(messages: Sequence[str]) -> DAG:
    """Return a DAG without tasks that tells what is wrong with the broken files.

    An import error would be seen better, but Airflow then deactivates every DAG of the loader
    file: nothing of them would be scheduled any more, not even the end of what runs.
    """
    text = "\n\n".join(messages)
    return DAG(
        BROKEN,
        dag_display_name="broken job files",
        schedule=None,
        tags=["broken"],
        doc_md=f"These files are no DAGs until they are mended:\n\n```text\n{text}\n```\n",
    )


def _in_question(folder: Path, wanted: str | None) -> Iterable[Path]:
    """Return the files that may hold the wanted DAG; its usual file alone where that fits."""
    files = job_files(folder)
    if wanted is None:
        return files
    named = [path for path in files if path.stem == wanted and _mentions(path, wanted)]
    return named or [path for path in files if _mentions(path, wanted)]


def _mentions(path: Path, name: str) -> bool:
    try:
        return name in path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False

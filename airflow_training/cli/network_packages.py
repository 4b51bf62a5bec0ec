"""`networks package`: a training that runs without us, as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.context import open_store
from airflow_training.cli.output import fail, note
from airflow_training.errors import InputError

if TYPE_CHECKING:
    from airflow_training.documents.resolved import ResolvedJob

__all__ = ["package"]

_MARK = "trainer.json"
"""Is in every folder that was written by this."""


def package(
    source: Annotated[
        str,
        typer.Argument(metavar="RUN_OR_JOB", help="A run's id, or a job file with spec.trainer."),
    ],
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="A new folder.")],
) -> None:
    """Write a folder that trains the network of a run or a job on one machine, without this package.

    It holds the network as PyTorch, the trainer, a script, requirements and a README.
    """
    from airflow_training.admission.trainer.packing import packed_files

    files = packed_files(_job_of(source))
    if to.exists() and any(to.iterdir()) and not (to / _MARK).exists():
        raise fail(
            "--to", "is there, and was not written by this", value=str(to), hint="a new name"
        )
    for name, content in files.items():
        path = to / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    note(f"wrote {len(files)} files into {to}")
    note(f"next: cd {to} && pip install -r requirements.txt && python train.py")


def _job_of(source: str) -> ResolvedJob:
    if Path(source).is_file():
        from airflow_training.admission.check import check_file

        found = check_file(source)
        problems = [problem for each in found for problem in each.problems]
        if not problems and len(found) != 1:
            raise fail("RUN_OR_JOB", f"holds {len(found)} jobs where one is wanted", value=source)
        job = found[0].resolved if found else None
        if problems or job is None:
            raise InputError(problems=problems, path=source)
        return job
    store = open_store()
    return store.job(store.find_run(source).uid)

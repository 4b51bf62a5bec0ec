"""Find runs of ours that have jobs although nobody may be driving them any more."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from airflow_training.agent.files import read_json
from airflow_training.documents.resolved import RunRef
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.slurm.attempts import AttemptReader

__all__ = ["find_living_runs"]


def find_living_runs(
    root: Path,
    controller: str,
    reader_of: Callable[[RunRef], AttemptReader],
    *,
    older_than: float,
) -> list[tuple[RunRef, str]]:
    """Return runs of a deployment that have jobs, each with these; raises RuntimeUnavailable.

    `older_than`: epoch seconds; a run that was prepared later may have begun just now.
    """
    found = []
    for path in sorted(root.iterdir()) if root.is_dir() else ():
        about = read_json(path / "run.json")
        if about is None or about["controller"] != controller:
            continue
        if _prepared_at(path / "run.json") > older_than:
            continue
        run = RunRef(
            uid=path.name,
            job=about["job"],
            namespace=about["namespace"],
            controller=controller,
            generation=RunFolder(root, path.name).generation,
        )
        book = reader_of(run).book
        book.resolve_unsure()
        living = book.living()
        if living:
            found.append((run, ", ".join(each.job for each in living)))
    return found


def _prepared_at(about: Path) -> float:
    try:
        return about.stat().st_mtime
    except OSError:  # deleted just now
        return float("inf")

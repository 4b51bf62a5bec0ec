"""A run id that is used again, after the store has forgotten the run: its old folder makes way.

Nothing that lives is touched, nor what another deployment has made: then the new run is refused.
"""

from __future__ import annotations

import logging

from airflow_training.agent.files import read_json
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import InputError, Problem
from airflow_training.runtimes.folders.paths import RunFolder
from airflow_training.runtimes.local.leftovers import find_strays
from airflow_training.runtimes.local.scan import current

__all__ = ["leftover_problem", "quarantine_previous"]

log = logging.getLogger(__name__)


def leftover_problem(folder: RunFolder, run: RunRef) -> Problem | None:
    """The remains of an earlier run of this id that keep `run` from beginning here; None without any."""
    # a new one: also nothing without a folder may live
    strays = find_strays(folder) if run.submitted_at is None else ()
    if strays:
        pids = ", ".join(str(each.pid) for each in strays)
        return _refusal(folder, f"still lives (pid {pids})")
    about = read_json(folder.about)
    if about is None or not _is_of_another(about.get("submitted_at"), run):
        return None
    if about["controller"] != run.controller:
        return _refusal(folder, f"belongs to the deployment {about['controller']}")
    living = []
    for key in folder.instances():
        found = current(folder, *key)
        if found is not None and not found[1].over:
            living.append(f"{key} on {found[1].place}")
    return _refusal(folder, f"still lives: {', '.join(living)}") if living else None


def quarantine_previous(folder: RunFolder, run: RunRef) -> None:
    """Set the folder of an earlier run of this id aside; raises InputError where that cannot be."""
    about = read_json(folder.about)
    if about is None or run.submitted_at is None:
        return
    before = about.get("submitted_at")
    if before is None or not _is_of_another(before, run):
        return
    problem = leftover_problem(folder, run)
    if problem is not None:
        raise InputError(problems=[problem])
    aside = folder.path.with_name(f"{folder.path.name}.{before:.3f}")
    folder.path.rename(aside)
    log.warning("run %s: an earlier run had this id; its folder is now %s", run.uid, aside)


def _is_of_another(submitted_at: float | None, run: RunRef) -> bool:
    return run.submitted_at is None or submitted_at not in (None, run.submitted_at)


def _refusal(folder: RunFolder, why: str) -> Problem:
    return Problem(
        code="conflict",
        field="run_id",
        message=f"an earlier run of this id, which the store does not know, {why}: {folder.path}",
        hint="take another run id, or end and delete the earlier one",
    )

"""Folders of runs that shall not stay for ever: when one may be over, and how it goes.

A run with `ttlSecondsAfterFinished` has a marker whose time says when it can be over at the
earliest; so nobody has to look at every run. Whether it is over, the store knows.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from pathlib import Path

from airflow_training.agent.files import read_json
from airflow_training.documents.resolved import RunRef
from airflow_training.errors import StillAlive
from airflow_training.runtimes.folders.paths import RunFolder, locked

__all__ = ["delete_quarantined", "due_runs", "quarantine", "schedule_check"]


def _markers(local_dir: Path) -> Path:
    return local_dir / ".expiring"


def schedule_check(local_dir: Path, uid: str, *, at: float) -> None:
    """Note that the run may be over at `at` (epoch seconds), not before."""
    marker = _markers(local_dir) / uid
    marker.parent.mkdir(parents=True, exist_ok=True)
    marker.touch()
    os.utime(marker, (at, at))


def due_runs(local_dir: Path, *, now: float) -> list[str]:
    """Return the uids of runs that may be over by now, those that waited longest first."""
    found = []
    try:
        with os.scandir(_markers(local_dir)) as entries:
            for entry in entries:
                with contextlib.suppress(FileNotFoundError):  # somebody was faster
                    found.append((entry.stat().st_mtime, entry.name))
    except OSError:  # most often: no run here has a time to live
        return []
    return [uid for at, uid in sorted(found) if at <= now]


def quarantine(local_dir: Path, run: RunRef) -> None:
    """Take the folder of a removed run out of the way; `delete_quarantined` does the rest.

    What the job names by `output.uri` and `checkpoint.uri` stays where it is. Nothing else happens where there is
    no folder. Raises StillAlive where the run was not removed, or opened again since, or belongs to another controller.
    """
    folder, named = RunFolder(local_dir, run.uid), _named(local_dir) / run.uid
    if folder.path.is_dir() and [*folder.path.iterdir()] != [folder.files]:
        _set_aside(local_dir, folder, run, named)
    if named.is_dir():  # in one step: whoever is killed before it is followed by the next who tries
        named.rename(folder.path)


def _set_aside(local_dir: Path, folder: RunFolder, run: RunRef, named: Path) -> None:
    with locked(folder.prepare_lock):
        about = read_json(folder.about)
        if about is not None and about["controller"] != run.controller:
            raise StillAlive(f"run {run.uid} belongs to the deployment {about['controller']}")
        if folder.removed_generation < folder.generation:
            raise StillAlive(f"run {run.uid} was not removed, or was opened again")
        aside = _aside(local_dir) / f"{run.uid}.{secrets.token_hex(4)}"
        aside.parent.mkdir(mode=0o700, exist_ok=True)
        if folder.files.is_dir():
            named.parent.mkdir(mode=0o700, exist_ok=True)
            named.mkdir(mode=0o700, exist_ok=True)
            folder.files.rename(named / folder.files.name)
        # in one step: whoever opens the run again finds all of it or nothing
        folder.path.rename(aside)


def delete_quarantined(local_dir: Path, uid: str) -> None:
    """Delete what was set aside, also by others; raises OSError where something of `uid` stays."""
    aside = _aside(local_dir)
    for each in aside.iterdir() if aside.is_dir() else ():
        shutil.rmtree(each, ignore_errors=True)  # another process may be at it too
    left = [str(each) for each in aside.glob(f"{uid}.*")]
    if left:
        raise OSError(f"cannot delete {', '.join(left)}")
    (_markers(local_dir) / uid).unlink(missing_ok=True)


def _named(local_dir: Path) -> Path:
    return local_dir / ".named"


def _aside(local_dir: Path) -> Path:
    return local_dir / ".deleting"

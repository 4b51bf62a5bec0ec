"""What this package keeps on this machine: never a part of somebody's project."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from airflow_training.cloud.targets import cloud_folder
from airflow_training.settings import airflow_home, load_settings

__all__ = ["own_files"]

_STORE = "airflow_training.db"


def own_files() -> Sequence[Path]:
    """Its folders and the store's files, without links: `$AIRFLOW_HOME` may lie in a project."""
    home = airflow_home().resolve()
    return [
        cloud_folder().resolve(),
        load_settings().local_dir.resolve(),
        *(home / f"{_STORE}{each}" for each in ("", "-wal", "-shm", "-journal", ".upgrade-lock")),
    ]

"""Finding an environment that was had before, at the start of an instance: imports little, and asks no storage."""

from __future__ import annotations

from pathlib import Path

from airflow_training.environments.interpreters import interpreter_identity
from airflow_training.environments.marks import index_file, is_digest
from airflow_training.environments.preparing import PreparedEnvironment, find_prepared

__all__ = ["find_ready", "ready_folder", "remember"]


def find_ready(cache_dir: Path, digest: str, python: str) -> PreparedEnvironment | None:
    """Return the environment of a digest that was made for an interpreter, whole and used from now on."""
    folder = ready_folder(cache_dir, digest, python)
    return find_prepared(cache_dir.absolute(), folder) if folder else None


def ready_folder(cache_dir: Path, digest: str, python: str) -> str:
    """What the cache calls the environment of a digest for an interpreter; empty: it was never made there."""
    try:
        folder = _index_file(cache_dir, digest, python).read_text("utf-8")
    except FileNotFoundError:
        return ""
    return folder if is_digest(folder) else ""


def remember(cache_dir: Path, digest: str, python: str, folder: str) -> None:
    """Note which folder of the cache has the environment of a digest for an interpreter."""
    import tempfile  # not at the start of each instance

    path = _index_file(cache_dir, digest, python)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new", delete=False) as file:
        file.write(folder)
    Path(file.name).replace(path)


def _index_file(cache_dir: Path, digest: str, python: str) -> Path:
    return Path(index_file(str(cache_dir.absolute()), digest, interpreter_identity(python)))

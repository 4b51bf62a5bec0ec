"""Which folder is the project: the repository's top, else the folder with a pyproject.toml, else where it is started, or the script's own."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from airflow_training.errors import InputError

__all__ = ["find_root", "is_shared_folder"]

_MARKS = ("pyproject.toml", "setup.py", "setup.cfg", ".trainingignore")


def find_root(argv: Sequence[str], *, working_dir: Path, root: Path | None = None) -> Path:
    """The project's root for a command line, or `root` where the user names it.

    Raises:
        InputError: `root` is no folder.
    """
    if root is not None:
        named = working_dir / root
        if not named.is_dir():
            raise InputError.of(
                code="not-found", field="--root", message="it is no folder", value=str(root)
            )
        return Path(os.path.normpath(named))
    start = working_dir
    if argv and argv[0] != "-m":
        start = Path(os.path.normpath(working_dir / argv[0])).parent
    above = [start, *start.parents]
    for each in above:
        if (each / ".git").exists() and not is_shared_folder(each):
            return each
    for each in above:
        if any((each / mark).is_file() for mark in _MARKS) and not is_shared_folder(each):
            return each
    if working_dir in start.parents and not is_shared_folder(working_dir):
        return working_dir  # what `python sub/train.py` opens by a relative path lies here
    return start


def is_shared_folder(folder: Path) -> bool:
    """Whether a folder holds more than one project: a home, the temporary folder, the file system's top."""
    try:
        home = Path.home()
    except RuntimeError:
        home = Path("/")
    return folder.resolve() in {home.resolve(), Path(tempfile.gettempdir()).resolve(), Path("/")}

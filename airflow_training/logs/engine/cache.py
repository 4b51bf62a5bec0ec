"""Compiled things that are kept in the user's cache folder; losing them costs time only."""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from pathlib import Path


def folder() -> Path:
    """Return where this user keeps what can be made again."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(home).expanduser() / "airflow-training"


def cached(name: str) -> bytes | None:
    """The bytes kept under a name; None if they are not there, cannot be read or are somebody else's."""
    path = folder() / name
    try:
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_uid != os.getuid():
                return None
            return file.read()
    except OSError:
        return None


@cache
def code() -> str:
    """Tag of the version of the code that reads logs, and of its formats."""
    folder = Path(__file__).parent.parent
    files = [*folder.rglob("*.py"), *folder.glob("metrics/**/*.yaml")]
    return repr(sorted((str(path), path.stat().st_mtime_ns) for path in files))


MOST_KEPT = 40
"""Files; the oldest go."""


def keep(name: str, content: bytes) -> None:
    """Keep `content`, whole or not at all; a folder that cannot be written is no error."""
    with contextlib.suppress(OSError):
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder(), delete=False) as file:
            file.write(content)
        Path(file.name).replace(folder() / name)
        kept = sorted(folder().iterdir(), key=lambda path: path.stat().st_mtime)
        for path in kept[:-MOST_KEPT]:
            path.unlink()

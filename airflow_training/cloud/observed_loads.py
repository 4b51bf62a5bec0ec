"""What a hook saw a program open on this machine, as lines of a file: models that travel, data that may be read there.

Who sees it, and who sends it, are two programs: see "The hook's protocol" in docs/data-on-demand.md.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from airflow_training.errors import InputError

__all__ = ["ObservedLoads", "read_loads"]

_MOST_LINES = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLoads:
    """Files and folders that are still there, each once, in the order in which they were opened."""

    models: Sequence[Path] = ()
    data: Sequence[Path] = ()


def read_loads(path: Path) -> ObservedLoads:
    """Read what a hook has written; a line that is none was cut by a kill. Raises InputError where there is no such file."""
    found: dict[str, dict[Path, None]] = {"model": {}, "data": {}}
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for _, line in zip(range(_MOST_LINES), file, strict=False):
                _take(line, found)
    except OSError as error:
        raise InputError.of(
            code="missing",
            field="--loads",
            value=str(path),
            message=f"what was opened cannot be read: {error.strerror}",
            hint=f"TRAINING_LOADS_FILE={path} python SCRIPT, with the hook on PYTHONPATH, writes it",
        ) from None
    return ObservedLoads(models=[*found["model"]], data=[*found["data"]])


def _take(line: str, found: dict[str, dict[Path, None]]) -> None:
    try:
        told = json.loads(line)
        place, kind = Path(told["path"]), found.get(told["class"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    if kind is not None and place.is_absolute() and place.exists():
        kind[place] = None

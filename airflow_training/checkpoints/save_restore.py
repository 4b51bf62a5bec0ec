"""`save(state)` and `restore()`: checkpoints of anything that is numbers, text, bytes and arrays.

    state = restore() or {"step": 0, "weights": numpy.zeros(10)}
    for step in range(state["step"], total):
        ...
        save({"step": step + 1, "weights": weights}, step=step + 1)

Each save is whole before the call returns. Loops that should not wait use a `Saver`.
"""

from __future__ import annotations

import os
from typing import Any

from airflow_training.checkpoints.errors import CheckpointError
from airflow_training.checkpoints.records import Manifest
from airflow_training.checkpoints.saver import Saver

__all__ = ["restore", "save"]

_saver: Saver | None = None
"""The one of this process: a process belongs to one group."""


def restore(*, root: str | os.PathLike[str] | None = None, allow_pickle: bool = False) -> Any:
    """Return the newest state that is whole, None where there is none. All ranks call it once, first.

    `root`: folder or address, where no job says one. `tree` says what comes back as what.
    """
    global _saver  # noqa: PLW0603 - one of a process, as its random numbers are
    _saver = Saver(root=None if root is None else os.fspath(root), allow_pickle=allow_pickle)
    found = _saver.restore()
    return None if found is None else found.state(allow_pickle=allow_pickle)


def save(state: Any, *, step: int) -> Manifest | None:
    """Save a tree as the state after `step` steps, and wait until it is committed. All ranks call it.

    Returns None where there is no place to save to, or where a rank could not save (the log says why). Raises
    `CheckpointError` for what has no form without pickle, and before `restore` was called.
    """
    if _saver is None:
        raise CheckpointError("restore() comes before the first save(): it says where to go on")
    return _saver.save(step, lambda: state)

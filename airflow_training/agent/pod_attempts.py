"""Attempts that follow one another inside one pod: what is told of them, and how the next one begins.

An attempt is a *turn* of its pod, the first one 0. Orders come as a file (an annotation, through the
downward API) and name the turn they mean; what becomes of them is told with the progress.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from pathlib import Path

from airflow_training.agent.files import read_json, write_text
from airflow_training.agent.order import replace
from airflow_training.agent.progress import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from airflow_training.agent.order import Order

__all__ = ["BEGINS", "FILES", "expand_variables", "prepare_next_attempt", "replace_files"]

BEGINS = "airflow-training: attempt {} begins"
"""Line of the log before which everything is of earlier attempts."""
FILES = "files"
"""Beside the orders: path -> content of the files that may be replaced while a command runs."""


def expand_variables(text: str) -> str:
    """Return a text with `$(NAME)` replaced, as a kubelet does it; unknown names stay."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        return "$" if name is None else os.environ.get(name, found.group(0))

    return re.sub(r"\$\$|\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)", value, text)


def replace_files(folder: Path) -> None:
    """Have the files that may be replaced hold what `FILES` in a folder says now, each changed in one step."""
    for name, text in (read_json(folder / FILES) or {}).items():
        path = Path(name)
        if not path.is_file() or path.read_bytes() != text.encode():
            write_text(path, text, mode=0o644)  # whoever trains may be another user


def prepare_next_attempt(order: Mapping[str, Any], *, after: Order) -> Order:
    """Prepare the next attempt in this pod: its order, without traces of the attempt before."""
    for name, value in order["env"].items():
        os.environ[name] = expand_variables(str(value))
    if after.progress_file:
        Path(after.progress_file).unlink(missing_ok=True)
        Path(after.progress_file).with_name(MARK).unlink(missing_ok=True)
    for folder in filter(None, (after.output_dir, after.predictions_dir)):
        for each in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if each.is_dir() and not each.is_symlink():
                shutil.rmtree(each, ignore_errors=True)
            else:
                each.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.write(1, (BEGINS.format(order["attempt"]) + "\n").encode())
    return replace(
        after,
        command=[expand_variables(str(word)) for word in order["command"]],
        # an older controller says nothing of it
        deadline_seconds=order.get("deadline_seconds", after.deadline_seconds),
    )

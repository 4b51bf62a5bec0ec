r"""Report training progress; free to import in any script, with or without Airflow installed.

    from airflow_training.agent.progress import report
    report(step=step, total_steps=900, metrics={"loss": 0.3})

Where this package is not installed, two lines do the same:

    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as f:
        f.write(json.dumps({"time": time.time(), "step": step, "metrics": {"loss": 0.3}}) + "\n")

Other lines say what was committed (`{"checkpoint": {...}}`) and what is done between steps
(`{"section": "eval"}`, and `{"section": null}` after it).
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence

TYPE_CHECKING = False  # `typing` costs the agent 4 ms at every start
if TYPE_CHECKING:
    from typing import Any

__all__ = ["MARK", "mark_plan", "report", "report_checkpoint", "report_regroup", "section"]

MARK = "plan-carried-out"
"""File beside the progress file: the script carries the job's plan out."""


def report(
    *,
    step: int | None = None,
    total_steps: int | None = None,
    epoch: float | None = None,
    samples: int | None = None,
    metrics: Mapping[str, float] | None = None,
    files: Sequence[Mapping[str, Any]] | None = None,
) -> None:
    """Append one line to `$TRAINING_PROGRESS_FILE`; does nothing where that is not set.

    `files`: `{name, read, total}` of those read since the line before; all in one unit, as bytes or rows.
    """
    values = {
        "step": step,
        "total_steps": total_steps,
        "epoch": epoch,
        "samples": samples,
        "metrics": {name: float(value) for name, value in (metrics or {}).items()} or None,
        "files": [dict(each) for each in files] if files else None,
    }
    _append({k: v for k, v in values.items() if v is not None})


def report_checkpoint(
    reference: Mapping[str, Any],
    *,
    took: float | None = None,
    stall: float | None = None,
    bytes: int | None = None,  # noqa: A002 - as the line has it
    number: int | None = None,
) -> None:
    """Say that a checkpoint was committed: `reference` is its `uri`, `step` and `digest`.

    `took`: seconds from its snapshot to its commit; `stall`: seconds the training waited for it;
    `number`: which one it is of those saved one after the other, by which `keepEvery` counts.
    """
    values = {"seconds": took, "stall_seconds": stall, "bytes": bytes, "number": number}
    told = {k: v for k, v in values.items() if v is not None}
    _append({"checkpoint": {"at": time.time(), **reference, **told}})


def report_regroup(
    *,
    ranks: int,
    step: int,
    source: str,
    lost_steps: int,
    seconds: float,
    revision: int,
    moved_bytes: int | None = None,
) -> None:
    """Say that ranks formed their group again and went on, their processes being the same.

    `ranks`: how many they are; `step`: what was done when they went on; `source`: whose state they went on from;
    `lost_steps`: how many were done again; `seconds`: from the loss to the end of the first new step; `revision`: of the plan;
    `moved_bytes`: of the state that ranks got from another one, None where none gave any.
    """
    told = {"ranks": ranks, "step": step, "source": source, "lost_steps": lost_steps}
    moved = {} if moved_bytes is None else {"moved_bytes": moved_bytes}
    _append({"regrouped": {**told, "seconds": round(seconds, 3), "revision": revision, **moved}})


def mark_plan() -> None:
    """Leave a mark beside `$TRAINING_PROGRESS_FILE`, for the agent: the job's plan is carried out."""
    path = os.environ.get("TRAINING_PROGRESS_FILE")
    if path:
        with contextlib.suppress(OSError):  # nothing but a warning depends on it
            mark = os.path.join(os.path.dirname(path), MARK)  # noqa: PTH118, PTH120  # pathlib is slow to import
            os.close(os.open(mark, os.O_CREAT | os.O_WRONLY, 0o644))


@contextlib.contextmanager
def section(name: str) -> Iterator[None]:
    """Say that what happens inside is no training step: `init`, `compile`, `eval`, `save`, ...

    It has a time limit of its own (`checkpoint.progress.sections`). One inside another is the
    business of the outer one.
    """
    global _section  # noqa: PLW0603 - there is one training process
    outer, _section = _section, _section or name
    if not outer:
        _append({"section": name})
    try:
        yield
    finally:
        _section = outer
        if not outer:
            _append({"section": None})


_section = ""


def _append(values: Mapping[str, object]) -> None:
    path = os.environ.get("TRAINING_PROGRESS_FILE")
    if not path:
        return
    line = json.dumps({"time": time.time(), **values}) + "\n"
    # one write of one line with O_APPEND: several processes may report into one file
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)

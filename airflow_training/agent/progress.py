r"""Report training progress; free to import in any script, with or without Airflow installed.

    from airflow_training.agent.progress import report
    report(step=step, total_steps=900, metrics={"loss": 0.3})

Where this package is not installed, two lines do the same:

    with open(os.environ["TRAINING_PROGRESS_FILE"], "a") as f:
        f.write(json.dumps({"step": step, "total_steps": 900, "metrics": {"loss": 0.3}}) + "\n")
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping

__all__ = ["report"]


def report(
    *,
    step: int | None = None,
    total_steps: int | None = None,
    epoch: float | None = None,
    samples: int | None = None,
    metrics: Mapping[str, float] | None = None,
) -> None:
    """Append one line to `$TRAINING_PROGRESS_FILE`; does nothing where that is not set."""
    path = os.environ.get("TRAINING_PROGRESS_FILE")
    if not path:
        return
    values = {
        "step": step,
        "total_steps": total_steps,
        "epoch": epoch,
        "samples": samples,
        "metrics": {name: float(value) for name, value in (metrics or {}).items()} or None,
    }
    line = {"time": time.time(), **{k: v for k, v in values.items() if v is not None}}
    # one write of one line with O_APPEND: several processes may report into one file
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, (json.dumps(line) + "\n").encode())
    finally:
        os.close(descriptor)

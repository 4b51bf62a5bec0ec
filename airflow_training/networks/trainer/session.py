"""What a training leaves behind and goes on from: in a job that of the job, alone a file beside it."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from airflow_training.networks.trainer.shares import ShareOrder

try:
    if "TRAINER_ALONE" in os.environ:  # a packed training, wherever it runs
        raise ImportError
    from airflow_training.agent.progress import report as report_progress
    from airflow_training.agent.progress import section
    from airflow_training.checkpoints import Checkpointer
except ImportError:  # without us
    Checkpointer = None

    def report_progress(**line: Any) -> None:
        """Print a line of progress."""
        told = {name: value for name, value in line.items() if value is not None and name != "files"}
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()

    @contextmanager
    def section(name: str) -> Iterator[None]:  # noqa: ARG001 - alone nobody watches for hangs
        """Do what is inside."""
        yield


__all__ = ["FileCheckpoint", "open_checkpoint", "report_progress", "section"]


def open_checkpoint(model: Any, optimizer: Any, order: ShareOrder) -> Any:
    """Return what saves and restores a training: `restore`, `step` and `close` of `Checkpointer`."""
    if Checkpointer is not None:
        parts: Mapping[str, Any] = {"model": model, "optimizer": optimizer, "data": order}
        return Checkpointer(**parts, scheduler=None, scaler=None, ema=None)
    return FileCheckpoint(Path("checkpoint.pt"), model, optimizer, order)


class FileCheckpoint:
    """One file with the state of a training of one process, replaced as a whole."""

    def __init__(
        self, path: Path, model: Any, optimizer: Any, order: ShareOrder, *, every: int = 200
    ) -> None:
        """Take what is saved, after every `every` steps."""
        self._path = path
        self._parts = {"model": model, "optimizer": optimizer}
        self._order = order
        self._every = every
        self._last = 0

    def restore(self) -> int:
        """Put back what was saved, and return the step to begin with."""
        import numpy
        import torch

        if not self._path.exists():
            return 0
        state = torch.load(self._path, weights_only=True)
        for name, part in self._parts.items():
            part.load_state_dict(state[name])
        self._order.load_state_dict(json.loads(state["order"]))
        torch.set_rng_state(state["random"])
        random.seed(state["step"])
        numpy.random.seed(state["step"])  # noqa: NPY002 - the one that layers may draw from
        return int(state["step"])

    def step(self, step: int) -> None:
        """Say that a step is done."""
        self._last = step + 1
        if self._last % self._every == 0:
            self._save()

    def close(self) -> None:
        """Save the last step."""
        if self._last:
            self._save()

    def _save(self) -> None:
        import torch

        if os.environ.get("RANK", "0") != "0":
            return
        state: dict[str, Any] = {name: part.state_dict() for name, part in self._parts.items()}
        state |= {
            "order": json.dumps(self._order.state_dict()),
            "random": torch.get_rng_state(),
            "step": self._last,
        }
        partial = self._path.with_name(f".{self._path.name}.partial")
        torch.save(state, partial)
        partial.replace(self._path)


def file_readings(
    names: Sequence[str], read: Mapping[int, int], totals: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Return `files` of a report: of each file how many samples of this rank's part were taken."""
    return [
        {"name": names[file], "read": count, "total": totals[file]} for file, count in read.items()
    ]

"""A training that runs without jobs and agents: a file it goes on from, and lines of progress."""

from __future__ import annotations

import json
import os
import pickle
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy

from airflow_training.networks.trainer.shares import ShareOrder

__all__ = ["FileCheckpoint", "print_progress"]


def print_progress(
    *, step: int, total_steps: int, epoch: float, metrics: Mapping[str, float]
) -> None:
    """Print how far the training is."""
    told = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
    sys.stdout.write(f"step {step}/{total_steps}, epoch {epoch:.2f}: {told}\n")
    sys.stdout.flush()


class FileCheckpoint:
    """One file with the state of a training, replaced as a whole; rank 0 writes it."""

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
        """Put back what was saved, and return the step to begin with: 0 for none."""
        import torch

        if not self._path.exists():
            return 0
        try:
            state = torch.load(self._path, weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            raise ValueError(f"{self._path} is damaged; remove it to begin anew: {error}") from None
        try:
            for name, part in self._parts.items():
                part.load_state_dict(state[name])
        except (KeyError, ValueError, RuntimeError) as error:
            told = (
                f"{self._path} is of another network or optimizer; remove it to begin anew: {error}"
            )
            raise ValueError(told) from None
        self._order.load_state_dict(json.loads(state["order"]))
        torch.set_rng_state(state["random"])
        random.seed(state["step"])
        numpy.random.seed(state["step"])
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

"""What goes wrong with checkpoints."""

from __future__ import annotations

from airflow_training.errors import TrainingError

__all__ = ["BadCheckpoint", "CheckpointError", "StaleGeneration", "StoreRefused"]


class CheckpointError(TrainingError):
    """Something about checkpoints that the user can change."""


class StaleGeneration(CheckpointError):
    """A newer generation of the group exists: this process must not go on."""


class BadCheckpoint(CheckpointError):
    """Digests do not fit: what is stored is not what was written."""


class StoreRefused(CheckpointError):
    """The store cannot hold checkpoints safely."""

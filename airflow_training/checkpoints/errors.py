"""What goes wrong with checkpoints, and is said on purpose."""

from __future__ import annotations

from airflow_training.errors import TrainingError

__all__ = ["BadCheckpoint", "CheckpointError", "KeyExists", "StaleGeneration", "StoreRefused"]


class CheckpointError(TrainingError):
    """A checkpoint could not be written or read; base of all errors of this room."""


class BadCheckpoint(CheckpointError):
    """What was read is not what was written: a digest, a size or a name does not fit."""


class StaleGeneration(CheckpointError):
    """A later start of this training has taken over: this process may not commit any more."""


class StoreRefused(CheckpointError):
    """The store cannot keep checkpoints: not writable, or it does not show what was written."""


class KeyExists(CheckpointError):
    """The store has an object under this key already; objects are never overwritten."""

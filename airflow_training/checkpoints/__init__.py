"""Checkpoints that are whole or not there: written in the training process, without Airflow.

Standard library only at import; every name is loaded when it is used.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

_HOME = {
    "BadCheckpoint": "errors",
    "CheckpointError": "errors",
    "Checkpointer": "checkpointer",
    "Group": "group",
    "Rendezvous": "torch_rendezvous",
    "ResumableSampler": "sampler",
    "Saver": "saver",
    "StaleGeneration": "errors",
    "StoreRefused": "errors",
    "open_group": "opening",
    "restore": "save_restore",
    "save": "save_restore",
}
_AGENTS = {"section": "airflow_training.agent.progress"}
"""What scripts report with, under one roof with what they save with."""

_DEPRECATED = {"Meeting": "Rendezvous"}

__all__ = [
    "BadCheckpoint",
    "CheckpointError",
    "Checkpointer",
    "Group",
    "Rendezvous",
    "ResumableSampler",
    "Saver",
    "StaleGeneration",
    "StoreRefused",
    "open_group",
    "restore",
    "save",
    "section",
]


def __getattr__(name: str) -> Any:
    if name in _DEPRECATED:
        warnings.warn(
            f"{__name__}.{name} is now called {_DEPRECATED[name]}", DeprecationWarning, stacklevel=2
        )
        name = _DEPRECATED[name]
    home = f"{__name__}.{_HOME[name]}" if name in _HOME else _AGENTS.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)

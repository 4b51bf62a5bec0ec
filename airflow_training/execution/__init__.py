"""Training the way a plan says: any `torch.nn.Module`, split over ranks, equal to its serial training.

Imports torch only when something is used; every name is loaded then.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOME = {
    "DistributedTraining": "training",
    "ExecutionPlan": "execution_plan",
    "distribute": "distributing",
    "read_plan": "execution_plan",
}

__all__ = ["DistributedTraining", "ExecutionPlan", "distribute", "read_plan"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)

"""What a line of progress says. Pure: scripts write it, so nothing about it is taken for granted."""

from __future__ import annotations

import math
from typing import Any

from airflow_training.control.model import Progress

__all__ = ["progress_of"]


def progress_of(values: Any) -> Progress | None:
    """Return a decoded line as progress, without what makes no sense in it; None for no object."""
    if not isinstance(values, dict):
        return None

    def number(name: str) -> float | None:
        value = values.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return value if math.isfinite(value) else None

    def whole(name: str) -> int | None:
        value = number(name)
        return None if value is None else int(value)

    metrics = values.get("metrics")
    return Progress(
        step=whole("step"),
        total_steps=whole("total_steps"),
        epoch=number("epoch"),
        samples=whole("samples"),
        time=number("time"),
        metrics={
            str(name): float(value)
            for name, value in (metrics.items() if isinstance(metrics, dict) else ())
            if isinstance(value, int | float) and not isinstance(value, bool)
        },
    )

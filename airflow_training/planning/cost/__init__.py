"""What a strategy costs: seconds of a step and bytes of a device."""

from airflow_training.planning.cost.estimating import (
    estimate,
    evaluate,
    memory_bytes,
    step_seconds,
)
from airflow_training.planning.cost.floors import floors

__all__ = ["estimate", "evaluate", "floors", "memory_bytes", "step_seconds"]

"""What a strategy costs: seconds of a step and bytes of a device."""

from airflow_training.planning.cost.arranging import arrangement_costs
from airflow_training.planning.cost.estimating import (
    estimate,
    evaluate,
    memory_bytes,
    step_seconds,
)
from airflow_training.planning.cost.floors import floors, overheads, pass_seconds
from airflow_training.planning.cost.memory_floors import memory_floors

__all__ = [
    "arrangement_costs",
    "estimate",
    "evaluate",
    "floors",
    "memory_bytes",
    "memory_floors",
    "overheads",
    "pass_seconds",
    "step_seconds",
]

"""What a strategy costs: seconds of a step and bytes of a device."""

from airflow_training.planning.cost.estimating import estimate, evaluate

__all__ = ["estimate", "evaluate"]

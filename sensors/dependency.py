"""`<role>.await_<dependency>`: waits until what a role depends on is there. Decides nothing."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseSensorOperator

from airflow_training.operators.deferred import StartsInTriggerer
from airflow_training.triggers.dependency import DependencyTrigger

__all__ = ["DependencySensor"]


class DependencySensor(StartsInTriggerer, BaseSensorOperator):
    """Ends when `role` no longer waits for `upstream`, by the job's own conditions."""

    ui_color = "#e6e0f8"

    def __init__(self, *, role: str, upstream: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.upstream = upstream
        self.group_id = group_id
        self.start_with(self.trigger())

    def trigger(self) -> DependencyTrigger:
        """Return the trigger that watches the dependency."""
        return DependencyTrigger(group_id=self.group_id, role=self.role, upstream=self.upstream)

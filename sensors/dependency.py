"""`<role>.await_<dependency>`: waits until what a role depends on is there. Decides nothing."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseSensorOperator

from airflow_training.operators.deferred import TriggererStartMixin

__all__ = ["DependencySensor"]


class DependencySensor(TriggererStartMixin, BaseSensorOperator):
    """Ends when `role` no longer waits for `upstream`, by the job's own conditions.

    It shows what the loop itself waits for, and asks for the role where nobody has. It takes no
    worker: its trigger waits in a triggerer. It fails when the condition can no longer come true.

    Args:
        role: The role that waits.
        upstream: The role that it waits for, as its `dependsOn` says.
        group_id: The task group, empty at the top of a DAG.

    >>> DependencySensor(task_id="await_ps", role="worker", upstream="ps").trigger_arguments()
    {'group_id': '', 'role': 'worker', 'upstream': 'ps'}
    """

    ui_color = "#e6e0f8"
    trigger_class = "airflow_training.triggers.dependency.DependencyTrigger"

    def __init__(self, *, role: str, upstream: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.upstream = upstream
        self.group_id = group_id
        self.start_in_triggerer()

    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of the trigger's constructor."""
        return {"group_id": self.group_id, "role": self.role, "upstream": self.upstream}

"""`reconcile`: the task whose trigger hosts the loop. Holds no worker while the job runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow.sdk import BaseOperator

from airflow_training.operators.deferred import TriggererStartMixin

__all__ = ["ReconcileOperator"]


class ReconcileOperator(TriggererStartMixin, BaseOperator):
    """Drives one run to its end; fails exactly when the job did not succeed.

    A retry takes over what is alive. It takes no worker: its trigger waits in a triggerer.

    Args:
        group_id: The task group, empty at the top of a DAG.
        watched: Ids of the group's sensors and role tasks.
        mapped_roles: Id of a task that is mapped over the roles, instead of `watched`.

    >>> ReconcileOperator(task_id="reconcile", watched=["worker.run"], priority_weight=1000)
    <Task(ReconcileOperator): reconcile>
    """

    ui_color = "#d7ecd9"
    trigger_class = "airflow_training.triggers.reconcile.ReconcileTrigger"

    def __init__(
        self,
        *,
        group_id: str = "",
        watched: Sequence[str] = (),
        mapped_roles: str = "",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.group_id = group_id
        self.watched = tuple(watched)
        self.mapped_roles = mapped_roles
        self.start_in_triggerer()

    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of the trigger's constructor."""
        return {
            "group_id": self.group_id,
            "watched": list(self.watched),
            "mapped_roles": self.mapped_roles,
        }

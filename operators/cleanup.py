"""`cleanup`: makes sure that nothing of the run is alive, whatever happened before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["CleanupOperator"]


class CleanupOperator(BaseOperator):
    """Stops what still runs, confirms zero, removes what the job does not keep.

    The last task of a group that `training` makes. Safe to run again and safe beside a loop that
    is still stopping the run.

    Args:
        group_id: The task group, empty at the top of a DAG.

    Raises:
        StillAlive: something lives that cannot be reached from here; it is named.

    >>> CleanupOperator(task_id="cleanup", group_id="digits").group_id
    'digits'
    """

    ui_color = "#eeeeee"

    def __init__(self, *, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group_id = group_id

    def execute(self, context: Context) -> None:
        """Return when nothing is alive; raises StillAlive."""
        from airflow_training.operators.ending import clean

        clean(context["ti"], group_id=self.group_id, log=self.log.info)

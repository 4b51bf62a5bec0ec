"""`rollup`: tells how the job ended, root cause first, and fails the DAG run when it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import Asset, BaseOperator

from airflow_training.operators.failing import failure

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["RollupOperator"]


class RollupOperator(BaseOperator):
    """Reports final status, output and usage; updates the outlets of a job that succeeded.

    Each asset event carries `uri`, `checkpoint`, `metrics` and `run`. The XCom is a small dictionary
    of the same, also when the job failed: its checkpoint is where another one may go on. The task's
    state store has under `subtasks` where the processes of a job with checkpoints stood.

    Args:
        group_id: The task group, empty at the top of a DAG.

    Raises:
        AirflowFailException: the job did not succeed; its text begins with the root cause.

    >>> from airflow.sdk import Asset
    >>> RollupOperator(task_id="rollup", group_id="digits", outlets=[Asset("s3://models/digits")])
    <Task(RollupOperator): rollup>
    """

    template_fields: Sequence[str] = ()
    ui_color = "#fde2e1"

    def __init__(self, *, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.group_id = group_id

    def execute(self, context: Context) -> Mapping[str, Any]:
        """Return the result; raises AirflowFailException when the job did not succeed."""
        from airflow_training.operators.ending import finish

        result = finish(context["ti"], group_id=self.group_id, log=self.log.info)
        if result.subtasks is not None:
            context["task_state_store"].set("subtasks", {**result.subtasks})
        if not result.succeeded:
            context["ti"].xcom_push(key="return_value", value=result.reference())
            raise failure(result.story(), log=self.log)
        self.log.info("%s", result.story())
        for outlet in self.outlets:
            if isinstance(outlet, Asset):
                context["outlet_events"][outlet].extra = {**result.asset_extra()}
        return result.reference()

"""`reconcile`: the task whose trigger hosts the loop. Holds no worker while the job runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from airflow_training.triggers.reconcile import ReconcileTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["ReconcileOperator"]


class ReconcileOperator(BaseOperator):
    """Drives one run to its end; fails exactly when the job did not succeed.

    It starts in the triggerer, without a worker. A retry takes over what is alive.

    Args:
        group_id: The task group, empty at the top of a DAG.
        watched: Ids of the group's sensors and role tasks.
        mapped_roles: Id of a task that is mapped over the roles, instead of `watched`.
    """

    ui_color = "#d7ecd9"
    start_from_trigger = True

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
        classpath, arguments = self.trigger().serialize()
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=classpath, trigger_kwargs=arguments, next_method="resume"
        )

    def trigger(self) -> ReconcileTrigger:
        """Return the trigger that does the work."""
        return ReconcileTrigger(
            group_id=self.group_id, watched=self.watched, mapped_roles=self.mapped_roles
        )

    def execute(self, context: Context) -> None:
        """Hand over to the trigger, where Airflow did not start it there."""
        self.defer(trigger=self.trigger(), method_name="resume")

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Fail without a retry: the job's own restart rules have had their say."""
        raise AirflowFailException(event["message"])

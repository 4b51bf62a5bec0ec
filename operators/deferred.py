"""What all deferrable tasks of a group share: their trigger starts them, without a worker."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import BaseTrigger, StartTriggerArgs

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["StartsInTriggerer"]


class StartsInTriggerer:
    """Mixin for operators whose work is a trigger; a worker is needed only to tell a failure.

    Comes before the operator class; the operator calls `start_with` at the end of its `__init__`.
    """

    start_from_trigger = True
    start_trigger_args: StartTriggerArgs | None = None
    defer: Any
    """Of BaseOperator."""

    def trigger(self) -> BaseTrigger:
        """Return the trigger that does the work."""
        raise NotImplementedError

    def start_with(self, trigger: BaseTrigger) -> None:
        """Let the scheduler hand this trigger to a triggerer at once."""
        classpath, arguments = trigger.serialize()
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=classpath, trigger_kwargs=arguments, next_method="resume"
        )

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's own signature
        """Hand over to the trigger, where Airflow did not start it there (mapped tasks)."""
        self.defer(trigger=self.trigger(), method_name="resume")

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:  # noqa: ARG002
        """Fail without a retry: the job's own restart rules have had their say."""
        raise AirflowFailException(event["message"])

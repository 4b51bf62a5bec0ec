"""`<role>.await_<dependency>`: waits until what a role depends on is there. Decides nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseSensorOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from airflow_training.triggers.dependency import DependencyTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["DependencySensor"]


class DependencySensor(BaseSensorOperator):
    """Ends when `role` no longer waits for `upstream`, by the job's own conditions."""

    ui_color = "#e6e0f8"
    start_from_trigger = True

    def __init__(self, *, role: str, upstream: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.upstream = upstream
        self.group_id = group_id
        classpath, arguments = self.trigger().serialize()
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=classpath, trigger_kwargs=arguments, next_method="resume"
        )

    def trigger(self) -> DependencyTrigger:
        """Return the trigger that does the work."""
        return DependencyTrigger(group_id=self.group_id, role=self.role, upstream=self.upstream)

    def execute(self, context: Context) -> None:
        """Hand over to the trigger, where Airflow did not start it there."""
        self.defer(trigger=self.trigger(), method_name="resume")

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Fail; only reached where a trigger could not end the task itself."""
        raise AirflowFailException(event["message"])

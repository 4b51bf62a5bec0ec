"""What all deferrable tasks of a group share: their trigger starts them, without a worker.

Triggers are named, not imported: parsing a DAG must not pay for the store and the loop.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.triggers.base import StartTriggerArgs

from airflow_training.operators.failing import failure

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["TriggererStartMixin", "task_name"]


def task_name(group_id: str, name: str) -> str:
    """Return the id of the group's task called `name`."""
    return f"{group_id}.{name}" if group_id else name


class TriggererStartMixin:
    """Mixin for operators whose work is a trigger; a worker is needed only for some ends.

    Comes before the operator class; the operator calls `start_in_triggerer` at the end of its
    `__init__`.
    """

    start_from_trigger = True
    start_trigger_args: StartTriggerArgs | None = None
    trigger_class: ClassVar[str]
    """Module and name."""
    defer: Any
    """Of BaseOperator."""
    log: Any
    """Of BaseOperator."""
    on_success_callback: Any
    """Of BaseOperator."""

    @abstractmethod
    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of the trigger's constructor."""

    def start_in_triggerer(self) -> None:
        """Let the scheduler hand the trigger to a triggerer at once."""
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=self.trigger_class,
            trigger_kwargs=self._arguments(),
            next_method="resume",
        )

    def execute(self, context: Context) -> None:  # noqa: ARG002 - Airflow's own signature
        """Hand over to the trigger, where Airflow did not start it there (mapped tasks)."""
        module, _, name = self.trigger_class.rpartition(".")
        trigger = getattr(import_module(module), name)
        self.defer(trigger=trigger(**self._arguments()), method_name="resume")

    def _arguments(self) -> dict[str, Any]:
        # of a task that its trigger ends Airflow runs the failure callbacks, never those of success
        more = {"success_on_worker": True} if self.on_success_callback else {}
        return {**self.trigger_arguments(), **more}

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the task's value, or fail without a retry: the job has restarts of its own."""
        if "message" in event:
            if "value" in event:
                context["ti"].xcom_push(key="return_value", value=event["value"])
            raise failure(event["message"], log=self.log)
        return event["value"]

"""`<role>.run`: asks for a role and shows its story until the role has ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowFailException
from airflow.triggers.base import StartTriggerArgs

from airflow_training.triggers.role import RoleTrigger

if TYPE_CHECKING:
    from airflow.sdk import Context

__all__ = ["MappedRoleOperator", "RoleOperator"]


class RoleOperator(BaseOperator):
    """Activates one role and follows it; fails only when the role and the job both failed."""

    template_fields: Sequence[str] = ()
    ui_color = "#fff2cc"
    start_from_trigger = True

    def __init__(self, *, role: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.group_id = group_id
        classpath, arguments = self.trigger().serialize()
        self.start_trigger_args = StartTriggerArgs(
            trigger_cls=classpath, trigger_kwargs=arguments, next_method="resume"
        )

    def trigger(self) -> RoleTrigger:
        """Return the trigger that does the work."""
        return RoleTrigger(group_id=self.group_id, role=self.role)

    def execute(self, context: Context) -> None:
        """Hand over to the trigger, where Airflow did not start it there."""
        self.defer(trigger=self.trigger(), method_name="resume")

    def resume(self, context: Context, event: Mapping[str, Any]) -> None:
        """Fail; only reached where a trigger could not end the task itself."""
        raise AirflowFailException(event["message"])


class MappedRoleOperator(RoleOperator):
    """A role task of the generic DAG, mapped over the roles that `plan` found.

    Its map index counts roles, not groups; it starts on a worker, as mapped tasks do.
    """

    start_from_trigger = False

    def trigger(self) -> RoleTrigger:
        """Return the trigger that does the work."""
        return RoleTrigger(group_id=self.group_id, role=self.role, map_index=-1)

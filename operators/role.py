"""`<role>.run`: asks for a role and shows its story until the role has ended."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from airflow_training.operators.deferred import StartsInTriggerer
from airflow_training.triggers.role import RoleTrigger

__all__ = ["MappedRoleOperator", "RoleOperator"]


class RoleOperator(StartsInTriggerer, BaseOperator):
    """Activates one role and follows it; fails only when the role and the job both failed."""

    ui_color = "#fff2cc"

    def __init__(self, *, role: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.group_id = group_id
        self.start_with(self.trigger())

    def trigger(self) -> RoleTrigger:
        """Return the trigger that follows the role."""
        return RoleTrigger(group_id=self.group_id, role=self.role)


class MappedRoleOperator(RoleOperator):
    """A role task of the generic DAG, mapped over the roles that `plan` found.

    Its map index counts roles, not groups; it starts on a worker, as mapped tasks do.
    """

    start_from_trigger = False

    def trigger(self) -> RoleTrigger:
        """Return the trigger that follows the role."""
        return RoleTrigger(group_id=self.group_id, role=self.role, map_index=-1)

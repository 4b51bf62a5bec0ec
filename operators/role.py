"""`<role>.run`: asks for a role and shows its story until the role has ended."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from airflow_training.operators.deferred import StartsInTriggerer

__all__ = ["MappedRoleOperator", "RoleOperator"]


class RoleOperator(StartsInTriggerer, BaseOperator):
    """Activates one role and follows it; fails only when the role and the job both failed."""

    ui_color = "#fff2cc"
    trigger_class = "airflow_training.triggers.role.RoleTrigger"

    def __init__(self, *, role: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.group_id = group_id
        self.start_in_triggerer()

    def trigger_arguments(self) -> dict[str, Any]:
        """Return what the trigger's constructor needs."""
        return {"group_id": self.group_id, "role": self.role}


class MappedRoleOperator(RoleOperator):
    """A role task of the generic DAG, mapped over the roles that `plan` found.

    Its map index counts roles, not groups; it starts on a worker, as mapped tasks do.
    """

    start_from_trigger = False

    def trigger_arguments(self) -> dict[str, Any]:
        """Return what the trigger's constructor needs."""
        return {**super().trigger_arguments(), "map_index": -1}

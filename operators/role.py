"""`<role>.run`: asks for a role and shows its story until the role has ended."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator

from airflow_training.operators.deferred import TriggererStartMixin

__all__ = ["MappedRoleOperator", "RoleOperator"]


class RoleOperator(TriggererStartMixin, BaseOperator):
    """Asks for one role and follows it; fails only when the role and the job both failed.

    A task of yours before it holds the role back until it has ended. It takes no worker: its
    trigger waits in a triggerer.

    Args:
        role: Name of the role.
        group_id: The task group, empty at the top of a DAG.

    >>> RoleOperator(task_id="run", role="worker", group_id="digits").trigger_arguments()
    {'group_id': 'digits', 'role': 'worker'}
    """

    ui_color = "#fff2cc"
    trigger_class = "airflow_training.triggers.role.RoleTrigger"

    def __init__(self, *, role: str, group_id: str = "", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.role = role
        self.group_id = group_id
        self.start_in_triggerer()

    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of the trigger's constructor."""
        return {"group_id": self.group_id, "role": self.role}


class MappedRoleOperator(RoleOperator):
    """A role task of the generic DAG, mapped over the roles that `plan` found.

    Its map index counts roles, not groups; it starts on a worker, as mapped tasks do.

    >>> MappedRoleOperator.partial(task_id="role").expand(role=["master", "worker"])
    <Mapped(MappedRoleOperator): role>
    """

    start_from_trigger = False

    def trigger_arguments(self) -> dict[str, Any]:
        """Arguments of the trigger's constructor."""
        return {**super().trigger_arguments(), "map_index": -1}

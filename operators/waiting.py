"""Which tasks of a group wait in the triggerer, and in which pools. No store, no decision."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.control.pools import WaitingTask
from airflow_training.operators.deferred import task_name
from airflow_training.sensors.dependency import DependencySensor

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["waiting_tasks"]


def waiting_tasks(dag: DAG, *, group_id: str, roles: Sequence[str]) -> list[WaitingTask]:
    """Return `reconcile`, sensors and role tasks of a group.

    `roles`: the job's, for a group with one task that is mapped over them.
    """
    # Airflow's own types know neither our attributes nor which of its two kinds a task is
    reconcile: Any = dag.get_task(task_name(group_id, "reconcile"))
    found = [_waiting(reconcile)]
    for task_id in reconcile.watched:
        task: Any = dag.get_task(task_id)
        found.append(_waiting(task, role=task.role, sensor=isinstance(task, DependencySensor)))
    if reconcile.mapped_roles:
        mapped = dag.get_task(reconcile.mapped_roles)
        found += [_waiting(mapped, role=role, suffix=f"[{role}]") for role in roles]
    return found


def _waiting(task: Any, *, role: str = "", sensor: bool = False, suffix: str = "") -> WaitingTask:
    return WaitingTask(
        task_id=f"{task.task_id}{suffix}",
        pool=task.pool,
        slots=task.pool_slots,
        role=role,
        sensor=sensor,
    )

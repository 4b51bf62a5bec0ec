"""The first pass of a run, made by `plan`: training starts before a triggerer takes the run up.

The same loop as the reconciler's, under the same lease, for a moment. No Airflow classes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_training.documents.resolved import RunKey
from airflow_training.operators.deferred import task_name
from airflow_training.operators.waiting import waiting_tasks
from airflow_training.runtimes.port import Runtime
from airflow_training.sensors.dependency import DependencySensor
from airflow_training.settings import load_settings
from airflow_training.state.store import Store
from airflow_training.supervise.loop import Supervisor
from airflow_training.supervise.owners import new_owner

if TYPE_CHECKING:
    from airflow.sdk import DAG

__all__ = ["first_pass", "free_roles"]

log = logging.getLogger(__name__)

_LIMIT_SECONDS = 20.0
"""What is not done by then is left to the reconciler, as after a kill."""


def first_pass(
    key: RunKey, *, store: Store, runtime: Runtime, dag: DAG, group_id: str, roles: Sequence[str]
) -> bool:
    """Ask for the roles that may start, and make the first pass; return whether it was made.

    Never raises: the reconciler does whatever was not done here.
    """
    try:
        why = _why_not(key, store=store, runtime=runtime, dag=dag, group_id=group_id, roles=roles)
        if why:
            log.info("reconcile begins the run: %s", why)
            return False
        for role in free_roles(dag, group_id=group_id, roles=roles):
            store.add_request(key.uid, "activate", role=role, by=task_name(group_id, "plan"))
        supervisor = Supervisor(
            store=store,
            runtime=runtime,
            run_uid=key.uid,
            owner=new_owner(),
            max_running_jobs=load_settings().max_running_jobs,
        )
        return asyncio.run(asyncio.wait_for(supervisor.first_pass(), _LIMIT_SECONDS))
    except Exception:
        log.warning("reconcile begins the run: the first pass failed", exc_info=True)
        return False


def _why_not(
    key: RunKey, *, store: Store, runtime: Runtime, dag: DAG, group_id: str, roles: Sequence[str]
) -> str:
    """Return why the run has to wait for `reconcile`; empty where it does not."""
    place = runtime.capabilities.place
    if place and set(store.airflow.places(key.source)) != {place}:
        return "what it starts here, a triggerer might not see"
    pools = store.airflow.pools(key.source)
    if any(task.pool in pools for task in waiting_tasks(dag, group_id=group_id, roles=roles)):
        return "its tasks wait in a pool that counts deferred ones"
    reconcile: Any = dag.get_task(task_name(group_id, "reconcile"))
    if reconcile.upstream_task_ids != {task_name(group_id, "plan")}:
        return "other tasks come before it"
    return ""


def free_roles(dag: DAG, *, group_id: str, roles: Sequence[str]) -> Sequence[str]:
    """Return the roles that no task of the user's holds back.

    Sensors of ours may: they only show what the loop itself waits for before it starts a role.
    """
    reconcile: Any = dag.get_task(task_name(group_id, "reconcile"))
    watched: list[Any] = [dag.get_task(each) for each in reconcile.watched]
    tasks = [(task.role, task) for task in watched]
    if reconcile.mapped_roles:
        tasks = [(role, dag.get_task(reconcile.mapped_roles)) for role in roles]
    sensors = {task.task_id for task in watched if isinstance(task, DependencySensor)}
    ours = {task_name(group_id, "plan"), *sensors}
    held = {role for role, task in tasks if not task.upstream_task_ids <= ours}
    return [role for role in roles if role not in held]

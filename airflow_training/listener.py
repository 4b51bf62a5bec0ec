"""Tells the store Airflow's pools, from the scheduler, when a DAG run with a training group starts.

`plan` refuses a group that does not fit into its pool, but only the scheduler and the API server
may read pools. Airflow calls this before the first task of the run is scheduled, also when a run
that had ended was cleared.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from typing import Any

from airflow.listeners import hookimpl

__all__ = ["on_dag_run_running"]

log = logging.getLogger(__name__)

_WAIT_SECONDS = 2.0
"""A store that does not answer must not hold the scheduler."""

_saving = threading.Thread()
"""The newest attempt, so that there is never more than one."""


@hookimpl
def on_dag_run_running(dag_run: Any) -> None:
    """Save the pools that count deferred tasks; nothing for a run without tasks of ours."""
    pools = _pools(dag_run) if _has_training(dag_run) else None
    if pools is None:
        return
    # imported by this thread: the scheduler forks workers, which must inherit no half-done import
    from airflow_training.state.store import deployment_id, open_store

    def save() -> None:
        try:
            open_store().save_pools(deployment_id(), pools)
        except Exception:  # the store's trouble must not become the scheduler's
            log.warning("Airflow's pools could not be saved for `plan`", exc_info=True)

    global _saving  # noqa: PLW0603 - the hook is a function, the scheduler is one
    if _saving.is_alive():
        log.warning("the store does not answer; `plan` goes by the pools it was told before")
        return
    _saving = threading.Thread(target=save, name="training-pools", daemon=True)
    _saving.start()
    _saving.join(_WAIT_SECONDS)


def _has_training(dag_run: Any) -> bool:
    tasks = dag_run.dag.tasks if dag_run.dag is not None else ()
    # asked softly: an error here would keep the listeners of other plugins from being called
    return any(getattr(task, "_task_module", "").startswith("airflow_training.") for task in tasks)


def _pools(dag_run: Any) -> Mapping[str, int] | None:
    """Return pool -> slots, read in the scheduler's own transaction; unlimited ones left out."""
    from airflow.models.pool import Pool
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    session = object_session(dag_run)
    if session is None:
        return None
    question = select(Pool.pool, Pool.slots).where(Pool.include_deferred, Pool.slots >= 0)
    with session.no_autoflush:
        return {str(name): int(slots) for name, slots in session.execute(question)}

"""Tells the store what only Airflow's own components know, for `plan` to go by.

The scheduler tells the pools and the living triggerers when a DAG run with a training group starts:
only it and the API server may read them. Airflow calls this before the first task of the run is
scheduled, also when a run that had ended was cleared. A triggerer tells at its start where it would
keep instances on its host.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from airflow.listeners import hookimpl

from airflow_training import preload
from airflow_training.airflow_compat import task_module

__all__ = ["on_dag_run_running", "on_starting"]

log = logging.getLogger(__name__)

_WAIT_SECONDS = 2.0
"""A store that does not answer must not hold the scheduler."""

_saving = threading.Thread()
"""The newest attempt, so that there is never more than one."""


@hookimpl
def on_dag_run_running(dag_run: Any) -> None:
    """Save pools that count deferred tasks, and triggerers; nothing for a run without tasks of ours."""
    known = _known(dag_run) if _has_training(dag_run) else None
    if known is None:
        return
    pools, triggerers = known
    # imported by this thread: the scheduler forks workers, which must inherit no half-done import
    from airflow_training.state.store import deployment_id, open_store

    def save() -> None:
        store = open_store()
        store.airflow.save_pools(deployment_id(), pools)
        store.airflow.save_triggerers(deployment_id(), triggerers)

    _in_a_moment(save)


@hookimpl
def on_starting(component: Any) -> None:
    """Save the place of this triggerer; nothing in any other component."""
    if preload.component(sys.argv) != "triggerer" or not hasattr(component, "hostname"):
        return
    from airflow_training.settings import load_settings
    from airflow_training.state.store import deployment_id, open_store
    from airflow_training.supervise.runtimes import place_here

    def save() -> None:
        place = place_here(load_settings())
        open_store().airflow.save_place(deployment_id(), host=component.hostname, place=place)

    _in_a_moment(save)


def _in_a_moment(save: Callable[[], None]) -> None:
    """Call `save`, and wait for it only so long."""

    def attempt() -> None:
        try:
            save()
        except Exception:  # the store's trouble must not become Airflow's
            log.warning("what `plan` goes by could not be saved", exc_info=True)

    global _saving  # noqa: PLW0603 - the hooks are functions, the component is one
    if _saving.is_alive():
        log.warning("the store does not answer; `plan` goes by what it was told before")
        return
    _saving = threading.Thread(target=attempt, name="training-facts", daemon=True)
    _saving.start()
    _saving.join(_WAIT_SECONDS)


def _has_training(dag_run: Any) -> bool:
    tasks = dag_run.dag.tasks if dag_run.dag is not None else ()
    return any(task_module(task).startswith("airflow_training.") for task in tasks)


def _known(dag_run: Any) -> tuple[Mapping[str, int], Sequence[str]] | None:
    """Return pool -> slots (unlimited ones left out), and the hosts of living triggerers.

    Read in the scheduler's own transaction.
    """
    from sqlalchemy import select
    from sqlalchemy.orm import object_session

    from airflow_training.airflow_compat import Job, JobState, Pool

    session = object_session(dag_run)
    if session is None:
        return None
    counting = select(Pool.pool, Pool.slots).where(Pool.include_deferred, Pool.slots >= 0)
    running = select(Job).where(Job.job_type == "TriggererJob", Job.state == JobState.RUNNING)
    with session.no_autoflush:
        pools = {str(name): int(slots) for name, slots in session.execute(counting)}
        triggerers = [str(job.hostname) for job in session.scalars(running) if job.is_alive()]
    return pools, triggerers

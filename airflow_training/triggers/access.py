"""How tasks and triggers reach store and runtime, and which run a task instance belongs to."""

from __future__ import annotations

from typing import Any

from airflow_training.runtimes.port import Runtime
from airflow_training.settings import load_settings
from airflow_training.spec.resolved import RunKey
from airflow_training.state.store import Store, open_store
from airflow_training.supervise.launch import controller_id
from airflow_training.supervise.runtimes import open_runtime

__all__ = ["open_store", "run_key", "runtime_of"]


def runtime_of(name: str) -> Runtime:
    """Return this process's adapter called `name`; raises InputError where it may not be used."""
    return open_runtime(name, in_airflow=True)


def run_key(store: Store, ti: Any, *, group_id: str, map_index: int | None = None) -> RunKey:
    """Return the run that `ti`'s group drives. `map_index`: instead of the task's own.

    Every task of a group computes the same key, so that nothing needs to be handed around.
    Blocks on the store.
    """
    return RunKey(
        source=controller_id(store, load_settings()),
        dag_id=ti.dag_id,
        run_id=ti.run_id,
        group_id=group_id,
        map_index=ti.map_index if map_index is None else map_index,
    )

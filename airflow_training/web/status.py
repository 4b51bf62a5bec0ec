"""The status of a run as JSON, for `airflow-training status --server`. Asks Airflow who may read it."""

from __future__ import annotations

from typing import Any

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import requires_access_dag
from fastapi import APIRouter, Depends, HTTPException

from airflow_training.errors import InputError
from airflow_training.spec.resolved import RunKey
from airflow_training.state.store import RunRecord, Store, deployment_id, open_store
from airflow_training.supervise.status import run_status

__all__ = ["router"]

router = APIRouter()
_may_read_runs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))


@router.get("/status", dependencies=[_may_read_runs])
def status(dag_id: str, run: str) -> dict[str, Any]:
    """Return what `status --output json` prints. `run`: id of the DAG run, or of the training run."""
    store = open_store()
    record = _find(store, dag_id, run)
    if record is None or record.key.dag_id != dag_id:  # only this DAG's access was asked for
        raise HTTPException(404, f"DAG {dag_id} has no training run {run} (yet)")
    return run_status(store, record.uid)


def _find(store: Store, dag_id: str, run: str) -> RunRecord | None:
    own = store.run(RunKey(source=deployment_id(), dag_id=dag_id, run_id=run).uid)
    if own is not None:
        return own
    try:
        return store.find_run(run)
    except InputError:
        return None

"""The status of a run as JSON, for `airflow-training status --server`. Asks Airflow who may read it."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query

from airflow_training.airflow_compat import DagAccessEntity, requires_access_dag
from airflow_training.documents.resolved import RunKey
from airflow_training.errors import InputError
from airflow_training.state.store import RunRecord, Store, deployment_id, open_store
from airflow_training.supervise.status import run_status

__all__ = ["router"]

router = APIRouter()
_may_read_runs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.RUN))


@router.get("/status", dependencies=[_may_read_runs])
def status(dag_id: Annotated[str, Query(min_length=1)], run: str) -> dict[str, Any]:
    """The document of `status --output json`. `run`: id of the DAG run, or of the training run.

    422 without a DAG: runs of the command line have none, and no rights of Airflow reach them.
    """
    store = open_store()
    record = _find(store, dag_id, run)
    # only access to this DAG was asked for, and another deployment may have one of its name
    if record is None or (record.key.source, record.key.dag_id) != (deployment_id(), dag_id):
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

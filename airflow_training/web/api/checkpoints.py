"""Reads what is known of a run's checkpoints."""

from __future__ import annotations

from fastapi import APIRouter, Depends, HTTPException, Request

from airflow_training.errors import InputError
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.answers import dag_of
from airflow_training.web.checkpoints import CheckpointPage, RunLink, checkpoint_page, source_run
from airflow_training.web.rights import RunDep, known, read, rights_of

__all__ = ["router"]

_MOST_EVENTS = 1000

router = APIRouter(dependencies=[Depends(read)])


@router.get("/dags/{dag}/trainings/{uid}/checkpoints")
def checkpoints(request: Request, run: RunDep) -> CheckpointPage:
    """Return what the run has saved, as far as it has told: the newest thousand events of it, and what its ledger holds."""
    store = open_store()
    state = store.read([run.uid]).get(run.uid)
    if state is None:
        raise HTTPException(404, f"there is no training {run.uid} here")
    return checkpoint_page(
        state,
        store.checkpoint_events(run.uid, limit=_MOST_EVENTS),
        store.subtasks.of_run(run.uid),
        source=_link(request, source_run(state.job)),
    )


def _link(request: Request, text: str | None) -> RunLink | None:
    """Return where the run is that a document names; None where it is gone, or the user may not read it."""
    if text is None:
        return None
    try:
        found = open_store().find_run(text)
    except InputError:
        return None
    return (
        RunLink(dag=dag_of(found), uid=found.uid, run_id=found.key.run_id)
        if _may(request, found)
        else None
    )


def _may(request: Request, run: RunRecord) -> bool:
    rights = rights_of(request)
    sources = rights.sources()
    if sources is not None and run.key.source not in sources:
        return False
    return rights.may(known(request), "read", run.key.dag_id or None)

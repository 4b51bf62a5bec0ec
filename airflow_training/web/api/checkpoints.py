"""Reads what is known of a run's checkpoints."""

from __future__ import annotations

import functools

from fastapi import APIRouter, Depends, HTTPException, Request

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.answers import dag_of
from airflow_training.web.checkpoint_loading import load_checkpoint_page
from airflow_training.web.checkpoints import (
    CheckpointPage,
    RunLink,
    has_saved_initial,
    source_run,
)
from airflow_training.web.rights import RunDep, known, read, rights_of

__all__ = ["router"]

router = APIRouter(dependencies=[Depends(read)])


@router.get("/dags/{dag}/trainings/{uid}/checkpoints")
def checkpoints(request: Request, run: RunDep) -> CheckpointPage:
    """Checkpoints of the run as far as it has told: its newest thousand events, and those in its ledger."""
    found = load_checkpoint_page(
        open_store(), run.uid, source_of=functools.partial(_source_link, request)
    )
    if found is None:
        raise HTTPException(404, f"there is no training {run.uid} here")
    return found


def _source_link(request: Request, job: ResolvedJob) -> RunLink | None:
    """Return where the run is that a job went on from; None where it is gone, or the user may not read it."""
    text = source_run(job)
    if text is None or job.checkpoint is None:
        return None
    try:
        found = open_store().find_run(text)
    except InputError:
        return None
    if not has_saved_initial(job.checkpoint, found) or not _may(request, found):
        return None
    return RunLink(dag=dag_of(found), uid=found.uid, run_id=found.key.run_id)


def _may(request: Request, run: RunRecord) -> bool:
    rights = rights_of(request)
    sources = rights.sources()
    if sources is not None and run.key.source not in sources:
        return False
    return rights.may(known(request), "read", run.key.dag_id or None)

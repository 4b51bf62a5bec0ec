"""Reads what the instances of a run have read of their data."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query

from airflow_training.documents.instances import InstanceKey
from airflow_training.state.records import RunState
from airflow_training.state.store import Store, open_store
from airflow_training.web.data import DataPage, FilePage, data_page, file_page
from airflow_training.web.rights import RunDep, read

__all__ = ["router"]

_MOST_FILES = 1000

router = APIRouter(dependencies=[Depends(read)])


@router.get("/dags/{dag}/trainings/{uid}/data")
def data(run: RunDep) -> DataPage:
    """Return how many samples and files each instance has read, how fast, and who waits."""
    store = open_store()
    return data_page(_state(store, run.uid), store.progress.data_readings(run.uid), now=store.now())


@router.get("/dags/{dag}/trainings/{uid}/data/files")
def files(
    run: RunDep,
    *,
    role: Annotated[str, Query(max_length=63)] = "",
    index: Annotated[int, Query(ge=0)] = 0,
    text: Annotated[str, Query(max_length=200)] = "",
    limit: Annotated[int, Query(ge=1, le=_MOST_FILES)] = 200,
) -> FilePage:
    """Return which files instances read and how far. No `role`: of all instances."""
    store = open_store()
    return file_page(
        _state(store, run.uid),
        store.progress.data_readings(run.uid),
        instance=InstanceKey(role, index) if role else None,
        text=text,
        limit=limit,
    )


def _state(store: Store, uid: str) -> RunState:
    state = store.read([uid]).get(uid)
    if state is None:
        raise HTTPException(404, f"there is no training {uid} here")
    return state

"""Where runs ran and with what, alone and against another one. Every handler runs in a thread."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request

from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.environment import (
    EnvironmentAnswer,
    EnvironmentDifference,
    environment,
    environment_difference,
)
from airflow_training.web.rights import RunDep, read, run_of

__all__ = ["router"]

router = APIRouter()


@router.get("/dags/{dag}/trainings/{uid}/environment", dependencies=[Depends(read)])
def training_environment(run: RunDep) -> EnvironmentAnswer:
    """Return nodes, image, Python, packages and devices of a run, as its agents told them."""
    return _environment(run)


def other_run(request: Request, other_dag: str, other: str) -> RunRecord:
    """Return the second run of the path: of that one's DAG the user must have the right too."""
    read(request, other_dag)
    return run_of(request, other_dag, other)


@router.get(
    "/dags/{dag}/trainings/{uid}/environment/difference/{other_dag}/{other}",
    dependencies=[Depends(read)],
)
def difference(
    run: RunDep, before: Annotated[RunRecord, Depends(other_run)]
) -> EnvironmentDifference:
    """Differences between the environments of two runs."""
    return environment_difference(_environment(before), _environment(run))


def _environment(run: RunRecord) -> EnvironmentAnswer:
    store = open_store()
    state = store.read([run.uid]).get(run.uid)
    if state is None:
        raise HTTPException(404, f"there is no training {run.uid} here")
    return environment(
        state,
        software=store.environments.software(run.uid),
        looks=store.environments.last_two(run.uid),
    )

"""Where runs ran and with what, alone and against another one, and the environments that jobs may name.

Every handler runs in a thread.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request

from airflow_training.checkpoints.store import open_store as open_storage
from airflow_training.environments.addresses import public_url, storage_address
from airflow_training.environments.cache import default_folder
from airflow_training.errors import TrainingError
from airflow_training.settings import load_settings
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web.environment import (
    EnvironmentAnswer,
    EnvironmentDifference,
    KnownEnvironment,
    KnownEnvironments,
    environment,
    environment_difference,
)
from airflow_training.web.rights import RunDep, known, read, run_of

__all__ = ["router"]

router = APIRouter()


@router.get("/environments", dependencies=[Depends(known)])
def all_environments() -> KnownEnvironments:
    """Return the environments that jobs may name: the built-in one, and those of `[training] environments`."""
    # packaging, and what lists distributions: only where it is asked for
    from airflow_training.environments import provided

    option, problem = load_settings().environments, None
    try:
        storage = storage_address(option)
        found = provided.describe_all(storage=storage, open_storage=open_storage)
    except (OSError, TrainingError) as error:
        found = provided.describe_all(storage="", open_storage=open_storage)
        problem = public_url(f"{option}: {error}")
    cached = provided.cached_titles(found, default_folder())
    rows = [
        KnownEnvironment(
            name=each.name,
            version=each.version,
            digest=each.digest,
            python=each.python,
            packages=[*each.packages],
            image=each.image or None,
            cached=each.title in cached,
            pinned=cached.get(each.title, False),
        )
        for each in found
    ]
    return KnownEnvironments(environments=rows, problem=problem)


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

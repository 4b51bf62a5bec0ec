"""Pages with the logs of a task's instances. Every route asks Airflow whether the user may read them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from fastapi import Depends, FastAPI, HTTPException
from fastapi.responses import HTMLResponse, StreamingResponse

from airflow_training.airflow_compat import DagAccessEntity, requires_access_dag
from airflow_training.documents.resolved import RunKey
from airflow_training.errors import TrainingError
from airflow_training.runtimes.port import Cursor, InstanceRef, Runtime
from airflow_training.state.store import RunState, deployment_id, open_store
from airflow_training.triggers.access import runtime_of
from airflow_training.triggers.log_tail import instance_ref
from airflow_training.web import progress, status
from airflow_training.web.airflow_rights import AirflowRights
from airflow_training.web.airflow_runs import AirflowRuns
from airflow_training.web.app import add_routes
from airflow_training.web.page import instances_page

__all__ = ["app"]

_CHUNK_BYTES = 1 << 18

app = FastAPI(title="Training", docs_url=None, redoc_url=None, openapi_url=None)
app.include_router(status.router)
app.include_router(progress.router)
add_routes(app, AirflowRights(), runtime_of=runtime_of, new_runs=AirflowRuns())
_may_read_logs = Depends(requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_LOGS))


def _find(dag_id: str, run_id: str, task_id: str, map_index: int) -> RunState:
    """Return the run that a task belongs to; raises HTTPException.

    The group is a prefix of the task's id, and the map index counts groups or roles; the longest
    name that has a run in the store is the one.
    """
    store = open_store()
    source = deployment_id()
    parts = task_id.split(".")
    for length in range(len(parts) - 1, -1, -1):
        for index in (map_index, -1):
            key = RunKey(
                source=source,
                dag_id=dag_id,
                run_id=run_id,
                group_id=".".join(parts[:length]),
                map_index=index,
            )
            state = store.read([key.uid]).get(key.uid)
            if state is not None:
                return state
    raise HTTPException(404, "no training run belongs to this task (yet)")


def _role_of(state: RunState, task_id: str, map_index: int) -> str | None:
    """Return the role that a task is about; None: all of them."""
    parts = task_id.split(".")
    if len(parts) > 1 and parts[-2] in state.ledger.roles:
        return parts[-2]
    if parts[-1] == "role" and 0 <= map_index < len(state.job.roles):
        return state.job.roles[map_index].name
    return None


@app.get("/logs", dependencies=[_may_read_logs], response_class=HTMLResponse)
def instances(dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> str:
    """Return a page that lists the instances of a task with links to their logs."""
    state = _find(dag_id, run_id, task_id, map_index)
    here = {"dag_id": dag_id, "run_id": run_id, "task_id": task_id, "map_index": map_index}
    return instances_page(state, role=_role_of(state, task_id, map_index), query=here)


@app.get("/log", dependencies=[_may_read_logs])
async def log(
    dag_id: str,
    run_id: str,
    task_id: str,
    role: str,
    index: int,
    attempt: int | None = None,
    map_index: int = -1,
) -> StreamingResponse:
    """The log of one attempt of an instance so far, as text."""
    state = await asyncio.to_thread(_find, dag_id, run_id, task_id, map_index)
    if (role, index) not in state.ledger.instances:
        raise HTTPException(404, f"the job has no instance {index} of role {role}")
    reference = instance_ref(state.record, state.ledger, role, index)
    try:
        runtime = runtime_of(state.job)
    except TrainingError as error:
        raise HTTPException(409, str(error)) from error
    return StreamingResponse(
        _bytes(runtime, reference, attempt, gone=state.record.tombstone_reason),
        media_type="text/plain; charset=utf-8",
    )


async def _bytes(
    runtime: Runtime, reference: InstanceRef, attempt: int | None, *, gone: str
) -> AsyncIterator[bytes]:
    """Yield the log; `gone`: why there may be none any more."""
    cursor = Cursor()
    while True:
        try:
            chunk = await runtime.read_log(reference, cursor, limit=_CHUNK_BYTES, attempt=attempt)
        except (TrainingError, OSError) as error:
            yield f"[the log cannot be read now: {error}]\n".encode()
            return
        yield chunk.data
        if chunk.end or not chunk.data:
            if gone and not chunk.next.offset:
                yield f"[there is no log of it any more: {gone}]\n".encode()
            return
        cursor = chunk.next

"""Starts the job of a run once more: as it was, from one of the run's checkpoints, or as somebody has edited it.

Where there is Airflow, Airflow makes the new DAG run, as the user who asks; without it, a process of
`airflow-training run` does. The new run's id follows from the `Idempotency-Key`: a request that is
sent again begins nothing more.
"""

from __future__ import annotations

import asyncio
import hashlib
from typing import Annotated

from fastapi import APIRouter, Depends, Header, HTTPException, Request

from airflow_training.control import reasons
from airflow_training.control.model import Event
from airflow_training.documents.resolved import RunKey
from airflow_training.errors import InputError
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.web.answers import COMMAND_LINE
from airflow_training.web.checkpoint_loading import load_checkpoint_page
from airflow_training.web.document_check import CheckAnswer, DocumentCheck, check_document
from airflow_training.web.models import CheckRequest, RerunAnswer, RerunOffer, RerunRequest
from airflow_training.web.new_runs import NewRuns, resume_of
from airflow_training.web.request_size import DocumentRoute
from airflow_training.web.rights import (
    RunDep,
    User,
    UserDep,
    from_own_page,
    read,
    rights_of,
    submit,
)

__all__ = ["router"]

router = APIRouter(route_class=DocumentRoute)

_PATH = "/dags/{dag}/trainings/{uid}/again"


@router.get(_PATH, dependencies=[Depends(read)])
def offer(request: Request, run: RunDep, user: UserDep) -> RerunOffer:
    """Return whether the user may start the run's job again from here, and why not."""
    why = _new_runs(request).refusal(run)
    if not why and not rights_of(request).may(user, "submit", run.key.dag_id or None):
        why = "you may not start runs of this DAG"
    return RerunOffer(possible=not why, why=why)


@router.post(
    _PATH,
    status_code=202,
    dependencies=[Depends(read), Depends(submit), Depends(from_own_page)],
)
async def run_again(
    request: Request,
    run: RunDep,
    user: UserDep,
    asked: RerunRequest,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
) -> RerunAnswer:
    """Begin a new run of the job; `step`: from the run's checkpoint of this step.

    `document`: of another job, 422 with what is wrong with it where something is.
    """
    new_runs = _new_runs(request)
    if why := new_runs.refusal(run):
        raise HTTPException(409, why)
    store = open_store()
    if asked.document is not None:
        key = await _begin_document(request, run, user, asked, idempotency_key)
        how = " edited"
    else:
        if asked.step is not None:
            await asyncio.to_thread(_check_step, store, run, asked.step)
        key = new_runs.key(run, _digest(run.uid, str(asked.step), idempotency_key))
        resume = None if asked.step is None else resume_of(run, asked.step)
        await new_runs.begin(request, run, key.run_id, resume=resume)
        how = "" if asked.step is None else f" from step {asked.step}"
    event = Event(
        at=await asyncio.to_thread(store.now),
        reason=reasons.ACTION_REQUESTED,
        message=f"run again{how} by {user.name or 'somebody'}: {key.run_id}",
        data={"action": "again", "by": user.name, "run_id": key.run_id},
    )
    await asyncio.to_thread(store.add_event_once, run.uid, event)
    return RerunAnswer(dag=key.dag_id or COMMAND_LINE, run_id=key.run_id, uid=key.uid)


async def _begin_document(
    request: Request, run: RunRecord, user: User, asked: RerunRequest, idempotency_key: str
) -> RunKey:
    """Begin a run of the document, unless it has mistakes: then InputError says them."""
    document = asked.document or ""
    if asked.step is not None:
        raise HTTPException(422, "step: a document says itself where it starts from")
    checked = await asyncio.to_thread(_checked, request, run, user, document)
    if checked.mistakes:
        raise InputError(problems=checked.mistakes)
    new_runs = _new_runs(request)
    key = new_runs.document_key(run, _digest(run.uid, document, idempotency_key))
    await new_runs.begin_document(request, run, key.run_id, document=document)
    return key


@router.post(
    "/dags/{dag}/trainings/{uid}/check",
    dependencies=[Depends(read), Depends(submit), Depends(from_own_page)],
)
def check(request: Request, run: RunDep, user: UserDep, asked: CheckRequest) -> CheckAnswer:
    """Check a document that is to run in the place of this run's. Starts nothing."""
    return _checked(request, run, user, asked.document).answer()


def _checked(request: Request, run: RunRecord, user: User, document: str) -> DocumentCheck:
    return check_document(
        document,
        base_dir=open_store().job(run.uid).base_dir,
        run_uid=run.uid,
        source=_new_runs(request).document_source,
        user=user.name,
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256(" ".join(parts).encode()).hexdigest()[:12]


def _new_runs(request: Request) -> NewRuns:
    found: NewRuns = request.app.state.new_runs
    return found


def _check_step(store: Store, run: RunRecord, step: int) -> None:
    found = load_checkpoint_page(store, run.uid)
    if found is None or step not in found.restorable_steps:
        raise HTTPException(409, f"the training has no checkpoint of step {step} (any more)")

"""Asks something of a run: once, however often it is asked, and of the run as the user saw it.

A request is appended to the store; whoever drives the run acts on it.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, BackgroundTasks, Depends, Header, HTTPException, Request
from fastapi.responses import JSONResponse

from airflow_training.builtin_runtimes import SIMULATED
from airflow_training.control import reasons
from airflow_training.control.model import STOPS, Event
from airflow_training.errors import RunChanged
from airflow_training.settings import load_settings
from airflow_training.state.store import RunRecord, Store, open_store
from airflow_training.supervise.cleanup import drive_to_end
from airflow_training.supervise.role_checks import check_replicas
from airflow_training.web import answers
from airflow_training.web.models import ActionAnswer, ActionConflict, ActionRequest
from airflow_training.web.rights import RunDep, UserDep, act, from_own_page, may_act_on, rights_of

__all__ = ["router"]

_END_SECONDS = 600.0
"""How long a run that nobody drives is driven to its end."""


router = APIRouter()


@router.post(
    "/dags/{dag}/trainings/{uid}/actions",
    status_code=202,
    response_model=ActionAnswer,
    responses={409: {"model": ActionConflict}},
    dependencies=[Depends(act), Depends(from_own_page)],
)
def take_action(
    request: Request,
    run: RunDep,
    user: UserDep,
    asked: ActionRequest,
    background: BackgroundTasks,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
) -> Any:
    """Record what the user wants; 409 where the run is not as they saw it.

    The same `Idempotency-Key` again gets the same answer, and nothing more is done.
    """
    if not may_act_on(request, run):
        raise HTTPException(403, "only who submitted this training may do that")
    store = open_store()
    if asked.action == "scale":
        if asked.replicas is None:
            raise HTTPException(422, "replicas: is needed for scale")
        most = load_settings().max_replicas
        check_replicas(store.job(run.uid), asked.role, asked.replicas, most=most)
    number = _recorded(store, run, asked, by=user.name, key=idempotency_key)
    if number is None:
        return _refused(store, run)
    here = rights_of(request).standalone and run.runtime != SIMULATED
    if asked.action in STOPS and here:
        background.add_task(_end, request, store, run)
    return ActionAnswer(request=number, action=asked.action)


def _recorded(
    store: Store, run: RunRecord, asked: ActionRequest, *, by: str, key: str
) -> int | None:
    """Return the number of the request; None where the run is not as the user saw it."""
    known = store.request_of(run.uid, key)
    if known is not None and known.kind != asked.action:
        raise HTTPException(422, f"Idempotency-Key: came with {known.kind} before")
    scales = asked.action == "scale"
    overview = store.overviews([run.uid])[run.uid]
    seen = answers.mark_of(asked.seen)
    if known is None and (seen is None or asked.action not in answers.actions_of(overview)):
        # the same one may have come in between, by another connection
        known = store.request_of(run.uid, key)
        return None if known is None else known.id
    size = f" {asked.role} to {asked.replicas}" if scales else ""
    why = f": {asked.reason}" if asked.reason else ""
    try:
        return store.add_request(
            run.uid,
            asked.action,
            role=asked.role if scales else "",
            replicas=asked.replicas if scales else None,
            reason=asked.reason,
            by=by,
            seen=seen,
            key=key,
            event=Event(
                at=store.now(),
                reason=reasons.ACTION_REQUESTED,
                message=f"{asked.action}{size} by {by or 'somebody'}{why}",
                role=asked.role if scales else "",
                data={"action": asked.action, "by": by, "replicas": asked.replicas},
            ),
        )
    except RunChanged:
        return None


def _refused(store: Store, run: RunRecord) -> JSONResponse:
    now = store.overviews([run.uid])[run.uid]
    phrase, actions = answers.phrase_of(now), answers.actions_of(now)
    can = f"it can {', '.join(actions)}" if actions else "nothing can be asked of it"
    told = ActionConflict(
        detail=f"the training has changed since you looked: {phrase}; {can}",
        seen=answers.version_of(now),
        phrase=phrase,
        actions=actions,
    )
    return JSONResponse(told.model_dump(), status_code=409)


async def _end(request: Request, store: Store, run: RunRecord) -> None:
    """See a run of this machine to its end: there may be nobody else who drives it."""
    runtime = request.app.state.runtime_of(store.job(run.uid))
    await drive_to_end(run.uid, store=store, runtime=runtime, timeout_seconds=_END_SECONDS)

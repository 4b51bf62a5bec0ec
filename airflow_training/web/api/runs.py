"""Reads runs: lists, one whole, its events. Every handler runs in a thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request

import airflow_training
from airflow_training.control.model import JobState
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web import answers
from airflow_training.web.answers import (
    ACTIONS,
    COMMAND_LINE,
    CurrentUser,
    Detail,
    EventPage,
    LossPage,
    Summary,
    SummaryPage,
)
from airflow_training.web.details import load_detail
from airflow_training.web.rights import (
    RunDep,
    User,
    UserDep,
    known,
    may_act_on,
    read,
    rights_of,
)

__all__ = ["router"]

_MOST_RUNS = 200
_MOST_EVENTS = 1000

router = APIRouter()


@router.get("/me", dependencies=[Depends(known)])
def me(request: Request, user: UserDep) -> CurrentUser:
    """Return who asks, and what answers."""
    return CurrentUser(
        user=user.name,
        standalone=rights_of(request).standalone,
        version=airflow_training.__version__,
    )


@router.get("/trainings", dependencies=[Depends(known)])
def trainings(
    request: Request,
    user: UserDep,
    limit: Annotated[int, Query(ge=1, le=_MOST_RUNS)] = 50,
    before: str = "",
    state: Annotated[Sequence[JobState], Query()] = (),
    text: Annotated[str, Query(max_length=250)] = "",
) -> SummaryPage:
    """Return runs that the user may read, newest first. `before`: `next` of the page before."""
    rights = rights_of(request)
    found = open_store().runs(
        limit=limit + 1,
        states=state,
        sources=rights.sources(),
        dag_ids=rights.readable(user),
        text=text,
        before=_mark(before) if before else None,
    )
    page = found[:limit]
    more = len(found) > limit
    return SummaryPage(
        trainings=_summaries(_readable(request, user, page)),
        more=more,
        next=f"{page[-1].submitted_at!r} {page[-1].uid}" if more else None,
    )


@router.get("/trainings/losses", dependencies=[Depends(known)])
def losses(
    request: Request,
    user: UserDep,
    uid: Annotated[Sequence[str], Query(max_length=_MOST_RUNS)] = (),
) -> LossPage:
    """Return the loss of these runs as short lines; of those that the user may read."""
    store = open_store()
    found = [each.record for each in store.overviews([*uid]).values()]
    seen = [each.uid for each in _readable(request, user, found)]
    return LossPage(
        losses={
            each: [answers.finite(value) for value in values]
            for each, values in store.metrics.losses(seen).items()
        }
    )


def _readable(request: Request, user: User, records: Sequence[RunRecord]) -> list[RunRecord]:
    """Return those runs that the user may read.

    To see a DAG is less than to see its runs, where the auth manager knows both.
    """
    rights = rights_of(request)
    listed, sources = rights.readable(user), rights.sources()
    there = [
        each
        for each in records
        if (listed is None or each.key.dag_id in listed)
        and (sources is None or each.key.source in sources)
    ]
    dags = {each.key.dag_id for each in there}
    readable = {each for each in dags if rights.may(user, "read", each or None)}
    return [each for each in there if each.key.dag_id in readable]


def _mark(text: str) -> tuple[float, str | None]:
    """Return the place in the list that `next` names, or a time as a run's `submitted_at` says it."""
    at, _, uid = text.partition(" ")
    try:
        if uid:
            return float(at), uid
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp(), None
    except ValueError:
        raise HTTPException(
            422, f"before: {text!r} is neither a time nor `next` of a page"
        ) from None


@router.get("/dags/{dag}/dagRuns/{run_id}/trainings", dependencies=[Depends(read)])
def trainings_of_dag_run(request: Request, dag: str, run_id: str) -> SummaryPage:
    """Return the runs of one DAG run: of all its groups, mapped ones too."""
    records = open_store().runs(
        limit=_MOST_RUNS,
        sources=rights_of(request).sources(),
        dag_ids=["" if dag == COMMAND_LINE else dag],
        run_id=run_id,
    )
    return SummaryPage(trainings=_summaries(records))


def _summaries(records: Sequence[RunRecord]) -> list[Summary]:
    found = open_store().overviews([each.uid for each in records])
    return [answers.summary(found[each.uid]) for each in records if each.uid in found]


@router.get("/dags/{dag}/trainings/{uid}", dependencies=[Depends(read)])
def training(request: Request, run: RunDep) -> Detail:
    """Return everything about a run but its events, series and logs."""
    found = load_detail(open_store(), run.uid, allowed=ACTIONS if may_act_on(request, run) else ())
    if found is None:
        raise HTTPException(404, f"there is no training {run.uid} here")
    return found


@router.get("/dags/{dag}/trainings/{uid}/events", dependencies=[Depends(read)])
def events(
    run: RunDep,
    after: Annotated[int, Query(ge=0)] = 0,
    limit: Annotated[int, Query(ge=1, le=_MOST_EVENTS)] = 500,
) -> EventPage:
    """Return the run's story after an event, oldest first."""
    found = open_store().events(run.uid, after=after, limit=limit + 1)
    return EventPage(
        events=[answers.event(each) for each in found[:limit]], more=len(found) > limit
    )

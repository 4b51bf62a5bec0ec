"""Reads runs: lists, one whole, its events. Every handler runs in a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Query, Request

import airflow_training
from airflow_training.control.model import TERMINAL_JOB_STATES, JobState
from airflow_training.state.store import RunRecord, open_store
from airflow_training.web import answers
from airflow_training.web.answers import COMMAND_LINE
from airflow_training.web.details import load_detail
from airflow_training.web.instance_reports import listed_progress
from airflow_training.web.models import (
    ACTIONS,
    CurrentUser,
    Detail,
    EventPage,
    LossPage,
    StateCounts,
    Summary,
    SummaryPage,
)
from airflow_training.web.rights import (
    RunDep,
    User,
    UserDep,
    known,
    may_act_on,
    read,
    rights_of,
)

__all__ = ["readable_runs", "router", "summaries_of"]

_MOST_RUNS = 200
_MOST_EVENTS = 1000
_MOST_INSTANCES = 8
"""Of each role: so many tell a list how far a run is, as it shows very many runs."""

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
    since: str = "",
) -> SummaryPage:
    """Return runs that the user may read, newest first.

    `before`: `next` of the page before; `since`: a time, only runs that ended then or later.
    """
    rights = rights_of(request)
    found = open_store().runs(
        limit=limit + 1,
        states=state,
        sources=rights.sources(),
        dag_ids=rights.readable(user),
        text=text,
        ended_since=_time(since, "since") if since else None,
        before=_mark(before) if before else None,
    )
    page = found[:limit]
    more = len(found) > limit
    return SummaryPage(
        trainings=summaries_of(readable_runs(request, user, page)),
        more=more,
        next=f"{page[-1].submitted_at!r} {page[-1].uid}" if more else None,
    )


@router.get("/trainings/counts", dependencies=[Depends(known)])
def counts(request: Request, user: UserDep, since: str = "") -> StateCounts:
    """Return how many runs the user may read, by state; of those that are over, since a time."""
    rights = rights_of(request)
    found = open_store().count_runs(
        sources=rights.sources(),
        dag_ids=rights.readable(user),
        since=_time(since, "since") if since else 0.0,
    )
    readable = _readable_dags(request, user, {dag_id for dag_id, _ in found})
    states: Counter[str] = Counter()
    for (dag_id, state), count in found.items():
        if dag_id in readable:
            states[state] += count
    return StateCounts(
        running=states.pop("Running", 0),
        ended={each: states.pop(each, 0) for each in sorted(TERMINAL_JOB_STATES)},
        waiting=states.total(),
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
    seen = [each.uid for each in readable_runs(request, user, found)]
    return LossPage(
        losses={
            each: [answers.finite(value) for value in values]
            for each, values in store.metrics.losses(seen).items()
        }
    )


def readable_runs(request: Request, user: User, records: Sequence[RunRecord]) -> list[RunRecord]:
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
    readable = _readable_dags(request, user, {each.key.dag_id for each in there})
    return [each for each in there if each.key.dag_id in readable]


def _readable_dags(request: Request, user: User, dag_ids: Collection[str]) -> set[str]:
    return {*rights_of(request).may_read_of(user, dag_ids)}


def _mark(text: str) -> tuple[float, str | None]:
    """Return the place in the list that `next` names, or a time as a run's `submitted_at` says it."""
    at, _, uid = text.partition(" ")
    try:
        return (float(at), uid) if uid else (_time(text, "before"), None)
    except ValueError:
        raise _no_time(text, "before") from None


def _time(text: str, name: str) -> float:
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise _no_time(text, name) from None
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


def _no_time(text: str, name: str) -> HTTPException:
    also = " nor `next` of a page" if name == "before" else ""
    return HTTPException(422, f"{name}: {text!r} is {'neither' if also else 'not'} a time{also}")


@router.get("/dags/{dag}/dagRuns/{run_id}/trainings", dependencies=[Depends(read)])
def trainings_of_dag_run(request: Request, dag: str, run_id: str) -> SummaryPage:
    """Return the runs of one DAG run: of all its groups, mapped ones too."""
    records = open_store().runs(
        limit=_MOST_RUNS,
        sources=rights_of(request).sources(),
        dag_ids=["" if dag == COMMAND_LINE else dag],
        run_id=run_id,
    )
    return SummaryPage(trainings=summaries_of(records))


def summaries_of(records: Sequence[RunRecord]) -> list[Summary]:
    """Summarise runs as lists show them, in their order; those that are gone by now are left out."""
    store, uids = open_store(), [each.uid for each in records]
    found, now = store.overviews(uids), store.now()
    told = store.progress.of_runs(uids, instances=_MOST_INSTANCES)
    return [
        answers.summary(found[uid], progress=listed_progress(told.get(uid, ()), now=now))
        for uid in uids
        if uid in found
    ]


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

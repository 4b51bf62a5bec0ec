"""Tunings: a document is run once for each set of parameters, each a run of its own, and the trials are compared."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Path, Query, Request

from airflow_training.errors import InputError, Problem
from airflow_training.operators.trials import Goal, trial_of, winner
from airflow_training.state.store import open_store
from airflow_training.web.answers import finite
from airflow_training.web.api.new_trainings import (
    LOOK_UP_AGE,
    NewTrainingRequest,
    checked_of,
    folder_of,
    new_runs_of,
)
from airflow_training.web.api.runs import readable_runs, summaries_of
from airflow_training.web.document_check import problem_answer
from airflow_training.web.request_size import DocumentRoute
from airflow_training.web.rights import (
    User,
    UserDep,
    from_own_page,
    known,
    rights_of,
    submit_new,
)
from airflow_training.web.tunings import (
    TrialAnswer,
    Tuning,
    TuningAnswer,
    TuningCheckAnswer,
    TuningPage,
    differing,
    place_of,
    planned_trials,
    shared_output,
)

__all__ = ["router"]

router = APIRouter(route_class=DocumentRoute)
_WRITES = [Depends(submit_new), Depends(from_own_page)]
_CHECKED_WHILE_TYPED = 4
"""Trials that are checked whole at each pause of typing; all are before any begins."""
_BEGUN_AT_ONCE = 4
"""On one's own machine each is a process, which needs seconds of a processor to begin."""
_SECONDS_TO_ANSWER = 20.0
"""Trials that take longer are begun after the answer."""
_MOST_RUNS = 200
_LOG = logging.getLogger(__name__)
_BEGINNING: set[asyncio.Task[None]] = set()
"""Nothing else keeps a task from being collected."""


class TuningRequest(NewTrainingRequest):
    tuning: Tuning


@router.post("/tunings/check", dependencies=_WRITES)
def check(request: Request, user: UserDep, asked: TuningRequest) -> TuningCheckAnswer:
    """Check a document and what is to be tried of it. Starts nothing."""
    trials, mistakes, warnings, _ = _checked(request, user, asked, most=_CHECKED_WHILE_TYPED)
    return TuningCheckAnswer(
        mistakes=[*map(problem_answer, mistakes)],
        warnings=[*map(problem_answer, warnings)],
        trials=0 if mistakes else len(trials),
    )


@router.post("/tunings", status_code=202, dependencies=_WRITES)
async def begin(
    request: Request,
    user: UserDep,
    asked: TuningRequest,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
) -> TuningAnswer:
    """Begin a run for each trial; 422 with what is wrong where something is. The same request begins no second ones."""
    trials, mistakes, _, job = await asyncio.to_thread(_checked, request, user, asked)
    if mistakes:
        raise InputError(problems=mistakes)
    words = json.dumps([user.name, asked.document, asked.tuning.model_dump(), idempotency_key])
    tuning = hashlib.sha256(words.encode()).hexdigest()[:12]
    new_runs = new_runs_of(request)
    folder = await asyncio.to_thread(folder_of, request, asked)
    places = asyncio.Semaphore(_BEGUN_AT_ONCE)

    async def begin_trial(number: int, params: Mapping[str, Any]) -> None:
        key = new_runs.trial_key(job, tuning, number, len(trials))
        async with places:
            await new_runs.begin_new(
                request, key.run_id, document=asked.document, base_dir=folder, params=params
            )

    # what is refused for one is refused for all: then none has begun
    await begin_trial(0, trials[0])
    tasks = [
        asyncio.create_task(begin_trial(number, params), name=f"{tuning} {number}")
        for number, params in enumerate(trials)
        if number > 0
    ]
    for task in tasks:
        _BEGINNING.add(task)
        task.add_done_callback(_end_trial)
    if tasks:
        await asyncio.wait(tasks, timeout=_SECONDS_TO_ANSWER)
    pending = sum(not task.done() for task in tasks)
    failed = [why for task in tasks if task.done() and (why := _refusal(task))]
    return TuningAnswer(
        tuning=tuning,
        trials=len(trials),
        begun=len(trials) - len(failed) - pending,
        why=failed[0] if failed else "",
        pending=pending,
    )


def _refusal(task: asyncio.Task[None]) -> str:
    """Return why a trial was not begun; empty: it was."""
    if task.cancelled():
        return "the server ends"
    error = task.exception()
    if error is None:
        return ""
    return str(error.detail) if isinstance(error, HTTPException) else repr(error)


def _end_trial(task: asyncio.Task[None]) -> None:
    _BEGINNING.discard(task)
    if why := _refusal(task):
        _LOG.warning("the trial %s of a tuning was not begun: %s", task.get_name(), why)


@router.get("/tunings/{tuning}", dependencies=[Depends(known)])
def trials(
    request: Request,
    user: UserDep,
    tuning: Annotated[str, Path(pattern="^[0-9a-f]{12}$")],
    metric: Annotated[str, Query(max_length=250)] = "",
    goal: Goal = "max",
) -> TuningPage:
    """Return the trials of a tuning that the user may read; `best` is the one that `tune` would choose. 404: none."""
    rights, store = rights_of(request), open_store()
    found = store.runs(
        limit=_MOST_RUNS,
        sources=rights.sources(),
        dag_ids=rights.readable(user),
        text=f"tuning-{tuning}-",
    )
    places = {
        each.uid: place
        for each in readable_runs(request, user, found)
        if (place := place_of(each.key.run_id, tuning)) is not None
    }
    numbers = {uid: number for uid, (number, _) in places.items()}
    records = sorted(
        (each for each in found if each.uid in numbers), key=lambda each: numbers[each.uid]
    )
    if not records:
        raise HTTPException(404, f"there is no tuning {tuning} here")
    states = store.read([each.uid for each in records])
    params = {uid: state.job.variables.get("params") or {} for uid, state in states.items()}
    names = differing([*params.values()])
    told = [
        trial_of(
            store,
            states.get(each.uid),
            number=numbers[each.uid],
            params={name: params.get(each.uid, {}).get(name) for name in names},
            uid=each.uid,
            metric=metric,
        )
        for each in records
    ]
    summaries = {each.uid: each for each in summaries_of(records)}
    best = winner(told, goal=goal)
    return TuningPage(
        trials=[
            TrialAnswer(
                number=each.number,
                params=dict(each.params),
                value=finite(each.value),
                summary=summaries[each.run],
            )
            for each in told
            if each.run in summaries
        ],
        metrics=sorted(_metrics(summaries)),
        planned=max(trials for _, trials in places.values()),
        best=None if best is None else best.number,
    )


def _metrics(uids: Mapping[str, Any]) -> set[str]:
    newest = open_store().metrics.newest
    return {name for uid in uids for values in newest(uid).values() for name in values}


def _checked(
    request: Request, user: User, asked: TuningRequest, *, most: int | None = None
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Problem], Sequence[Problem], str]:
    """Return the trials, mistakes, warnings and the name of the job; `most`: trials that are checked whole."""
    age = LOOK_UP_AGE if most is not None else 0.0
    plain = checked_of(request, user, asked, look_up_age=age)
    if plain.declared is None:  # nothing is known of its parameters
        return (), plain.mistakes, plain.warnings, ""
    found, mistakes = planned_trials(asked.tuning, plain.declared)
    if mistakes:
        tried = {f"params.{each.name}" for each in asked.tuning.parameters}
        own = [each for each in plain.mistakes if each.field not in tried]
        return (), [*own, *mistakes], plain.warnings, ""
    checks = [
        checked_of(request, user, asked, params=params, look_up_age=LOOK_UP_AGE)
        for params in found[:most]
    ]
    told = {(each.field, each.message): each for checked in checks for each in checked.mistakes}
    warnings = {(each.field, each.message): each for checked in checks for each in checked.warnings}
    job = next((checked.job for checked in checks if checked.job), None)
    shared = shared_output(job.output_uri, found) if job else ()
    return found, [*told.values(), *shared], [*warnings.values()], job.name if job else ""

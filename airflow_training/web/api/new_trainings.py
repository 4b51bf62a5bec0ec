"""A training that is put together in a page: what it can be made of, whether it is right, its plan, its start."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, HTTPException, Request
from pydantic import BaseModel, Field

from airflow_training.admission.request import Planner
from airflow_training.admission.run_accounts import give_up_run, reserve_run
from airflow_training.admission.trainer.parameters import FIELDS
from airflow_training.builtin_runtimes import HERE, runtime_names
from airflow_training.documents.parsing import TrainingJob
from airflow_training.documents.resolved import ResolvedJob
from airflow_training.documents.schema import json_schema
from airflow_training.errors import InputError, Problem
from airflow_training.frameworks.registry import list_frameworks
from airflow_training.runtimes.registry import adapter_of
from airflow_training.settings import load_settings
from airflow_training.state.records import RunRecord
from airflow_training.state.store import open_store
from airflow_training.web.answers import COMMAND_LINE
from airflow_training.web.data_files import DataFilesAnswer, list_data_files
from airflow_training.web.document_check import (
    MOST_CHARACTERS,
    CheckAnswer,
    DocumentCheck,
    check_document,
)
from airflow_training.web.models import CheckRequest, RerunAnswer
from airflow_training.web.new_runs import NewRuns
from airflow_training.web.request_size import DocumentRoute
from airflow_training.web.rights import (
    User,
    UserDep,
    from_own_page,
    known,
    may_submit_new,
    rights_of,
    run_of,
    submit_new,
)

__all__ = [
    "LOOK_UP_AGE",
    "NewTrainingRequest",
    "checked_of",
    "folder_of",
    "new_runs_of",
    "router",
]

router = APIRouter(route_class=DocumentRoute)
_WRITES = [Depends(submit_new), Depends(from_own_page)]
LOOK_UP_AGE = 30.0
"""Seconds that the storage of environments is not asked again while somebody types; a run that begins asks it anyway."""


class RuntimeOffer(BaseModel):
    name: str
    why: str
    """Why no training starts there from here; empty: it can."""


class ConnectionOffer(BaseModel):
    name: str
    kind: str


class NewTrainingOffer(BaseModel):
    """What a new training can be made of."""

    possible: bool
    why: str
    """Why the user starts none here; empty: they may."""
    user: str
    """Who asks: what they type is kept under this name."""
    folder: str
    """Where relative paths start from; empty: a document names no files of this server."""
    lists_files: bool
    """Folders of this server's machine can be looked into: trainings may run on it."""
    runtimes: list[RuntimeOffer]
    default_runtime: str
    connections: list[ConnectionOffer]
    frameworks: list[str]
    trainer_fields: list[str]
    """Of `spec.trainer`, that a parameter may set: what a tuning may try of it."""


class PlanAnswer(BaseModel):
    """The plan that a job would get."""

    plan: dict[str, Any] | None
    """As `status` says it; None: the document asks for none, or it cannot be told."""
    why: str
    """Why it cannot be told; empty: it is, or none is asked for."""


class OriginRun(BaseModel):
    """The run that a document came from."""

    dag: str
    uid: str


class NewTrainingRequest(BaseModel):
    document: str = Field(max_length=MOST_CHARACTERS)
    origin: OriginRun | None = None
    """Its files are looked for where that run's were."""


class FilesRequest(BaseModel):
    uri: str = Field(max_length=4096)


@router.get("/new", dependencies=[Depends(known)])
async def offer(request: Request, user: UserDep) -> NewTrainingOffer:
    """Offer runtimes, connections and presets to the form; say whether the user may send it."""
    allowed = await asyncio.to_thread(may_submit_new, request)
    connections = await new_runs_of(request).connections(request) if allowed else ()
    standalone = rights_of(request).standalone
    return NewTrainingOffer(
        possible=allowed,
        why="" if allowed else "you may not start runs of the DAG training_job",
        user=user.name,
        folder=str(Path.cwd()) if standalone else "",
        lists_files=allowed and _lists_files(standalone=standalone),
        runtimes=await asyncio.to_thread(_runtimes, standalone=standalone),
        default_runtime=load_settings().default_runtime,
        connections=[ConnectionOffer(name=each.name, kind=each.kind) for each in connections],
        frameworks=sorted(each.name for each in list_frameworks()),
        trainer_fields=[*FIELDS],
    )


@router.get("/schema", dependencies=[Depends(known)])
def schema() -> dict[str, Any]:
    """Return the JSON Schema of a job, as `airflow-training schema` prints it."""
    return json_schema()


@router.post("/check", dependencies=_WRITES)
def check(request: Request, user: UserDep, asked: NewTrainingRequest) -> CheckAnswer:
    """Check a document that is to run. Starts nothing."""
    return checked_of(request, user, asked, look_up_age=LOOK_UP_AGE).answer()


@router.post("/plan", dependencies=_WRITES)
def plan(request: Request, user: UserDep, asked: CheckRequest) -> PlanAnswer:
    """Search the plan that a run of the document would get. Starts nothing; takes seconds at most."""
    runtime_of = request.app.state.runtime_of

    def planner(job: TrainingJob, resolved: ResolvedJob) -> Any:
        # numpy: only where one plans
        from airflow_training.admission.plan.history import history_of
        from airflow_training.admission.plan.step import plan_job

        return plan_job(job, resolved, runtime=runtime_of, history=history_of(open_store()))

    try:
        checked = checked_of(request, user, NewTrainingRequest(document=asked.document), planner)
    except InputError as error:
        return PlanAnswer(plan=None, why=str(error))
    if checked.mistakes:
        of_plan = [each for each in checked.mistakes if each.field.startswith("spec.plan")]
        return PlanAnswer(plan=None, why=str(of_plan[0]) if of_plan else "")
    found = checked.job.plan if checked.job else None
    return PlanAnswer(plan=dict(found.document) if found else None, why="")


@router.post("/data-files", dependencies=_WRITES)
def data_files(request: Request, asked: FilesRequest) -> DataFilesAnswer:
    """Return files of an address on this server's machine, with their sizes; 404 where no training may run on it."""
    standalone = rights_of(request).standalone
    if not _lists_files(standalone=standalone):
        raise HTTPException(
            404, "files are listed only where trainings run on the server's machine"
        )
    return list_data_files(asked.uri, folder=Path.cwd() if standalone else None)


@router.post("/runs", status_code=202, dependencies=_WRITES)
async def begin(
    request: Request,
    user: UserDep,
    asked: NewTrainingRequest,
    idempotency_key: Annotated[str, Header(min_length=1, max_length=128)],
) -> RerunAnswer:
    """Begin a run of a document; 422 with what is wrong with it where something is."""
    checked = await asyncio.to_thread(checked_of, request, user, asked)
    if checked.mistakes or checked.job is None:
        raise InputError(problems=checked.mistakes)
    words = json.dumps([user.name, asked.document, idempotency_key])  # no two join to one text
    digest = hashlib.sha256(words.encode()).hexdigest()[:12]
    new_runs = new_runs_of(request)
    key = new_runs.new_key(checked.job.name, digest)
    folder = await asyncio.to_thread(folder_of, request, asked)
    if not rights_of(request).standalone:  # that is the user's own machine
        await asyncio.to_thread(
            reserve_run, open_store(), checked.job, uid=key.uid, account=user.name
        )
    try:
        await new_runs.begin_new(request, key.run_id, document=asked.document, base_dir=folder)
    except HTTPException:
        await asyncio.to_thread(give_up_run, open_store(), key.uid)
        raise
    return RerunAnswer(dag=key.dag_id or COMMAND_LINE, run_id=key.run_id, uid=key.uid)


def checked_of(
    request: Request,
    user: User,
    asked: NewTrainingRequest,
    planner: Planner | None = None,
    *,
    params: Mapping[str, Any] | None = None,
    look_up_age: float = 0.0,
) -> DocumentCheck:
    """Check the document of a request as the start of its run would; `params`, `look_up_age`: as of `check_text`."""
    checked = check_document(
        asked.document,
        base_dir=folder_of(request, asked),
        run_uid="new",
        source=new_runs_of(request).document_source,
        user=user.name,
        planner=planner,
        params=params,
        look_up_age=look_up_age,
    )
    return replace(checked, warnings=[*checked.warnings, *_origin_gone(request, asked)])


def folder_of(request: Request, asked: NewTrainingRequest) -> str:
    """Return where files of the document are: nowhere inside Airflow, as for its form."""
    if not rights_of(request).standalone:
        return ""
    origin = _origin(request, asked)
    here = str(Path.cwd())
    return here if origin is None else open_store().job(origin.uid).base_dir or here


def _origin(request: Request, asked: NewTrainingRequest) -> RunRecord | None:
    """Return the run that the document came from; None: it came from none, or the run was removed since."""
    if asked.origin is None:
        return None
    try:
        return run_of(request, asked.origin.dag, asked.origin.uid)
    except HTTPException:
        return None


def _origin_gone(request: Request, asked: NewTrainingRequest) -> Sequence[Problem]:
    """Return a warning where files are looked for elsewhere, as the run that the document came from is gone."""
    if not rights_of(request).standalone or asked.origin is None:
        return ()
    if _origin(request, asked) is not None:
        return ()
    message = f"the run {asked.origin.uid} that this came from is gone: files are looked for in {Path.cwd()}"
    return [Problem(code="bad_reference", field="", message=message)]


def _lists_files(*, standalone: bool) -> bool:
    """Say whether names of this machine's files are no secret from who may submit: their commands may run on it anyway."""
    return standalone or adapter_of(HERE).refused_in_airflow(load_settings()) is None


def _runtimes(*, standalone: bool) -> list[RuntimeOffer]:
    settings = load_settings()
    offers = []
    for name in runtime_names():
        try:
            # what a connection may do is said of a document that names one
            adapter = adapter_of(name)
            adapter = adapter.at("any") if adapter.connection_type else adapter
            refused = None if standalone else adapter.refused_in_airflow(settings)
        except InputError as error:  # its package cannot be loaded
            refused = error.problems[0]
        offers.append(RuntimeOffer(name=name, why=refused.message if refused else ""))
    return offers


def new_runs_of(request: Request) -> NewRuns:
    """Return the starter of runs: Airflow's REST API, or this machine."""
    found: NewRuns = request.app.state.new_runs
    return found

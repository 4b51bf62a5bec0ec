"""Puts the routes together. The same for Airflow and for `airflow-training ui`."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Depends, FastAPI, Request
from fastapi.responses import JSONResponse

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.errors import InputError, RuntimeUnavailable, TrainingError
from airflow_training.runtimes.port import Runtime
from airflow_training.web import static_files
from airflow_training.web.api import (
    actions,
    checkpoints,
    configuration,
    data,
    environments,
    live,
    log_lines,
    logs,
    networks,
    new_trainings,
    predictions,
    presets,
    rerun,
    runs,
    search,
    series,
    tunings,
    usage,
)
from airflow_training.web.new_runs import NewRuns
from airflow_training.web.rights import Rights

__all__ = ["add_routes"]

_CODES: tuple[tuple[type[TrainingError], int], ...] = (
    (RuntimeUnavailable, 503),
    (InputError, 422),
    (TrainingError, 409),
)


def add_routes(
    app: FastAPI,
    rights: Rights,
    *,
    runtime_of: Callable[[ResolvedJob], Runtime],
    new_runs: NewRuns,
) -> None:
    """Give an app the API and the static files. `runtime_of`: opens the runtime of a job."""
    app.state.rights = rights
    app.state.runtime_of = runtime_of
    app.state.new_runs = new_runs
    for module in (
        runs,
        configuration,
        environments,
        networks,
        series,
        data,
        predictions,
        checkpoints,
        live,
        logs,
        log_lines,
        search,
        actions,
        rerun,
        new_trainings,
        presets,
        tunings,
        usage,
    ):
        app.include_router(
            module.router, prefix="/api", dependencies=[Depends(rights.authenticate)]
        )
    app.include_router(static_files.router)
    app.add_exception_handler(TrainingError, _error_response)


def _error_response(_: Request, error: Exception) -> JSONResponse:
    """Return what a TrainingError says, as FastAPI returns its own errors."""
    code = next(code for kind, code in _CODES if isinstance(error, kind))
    return JSONResponse({"detail": str(error)}, status_code=code)

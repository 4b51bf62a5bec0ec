"""What most commands need: settings, the store and a run in it. Opens lazily, prints nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_training.cli.output import fail, note
from airflow_training.errors import InputError
from airflow_training.settings import Settings, load_settings

if TYPE_CHECKING:
    from airflow_training.admission.plan.history import History
    from airflow_training.documents.resolved import ResolvedJob
    from airflow_training.runtimes.port import Runtime
    from airflow_training.state.store import RunRecord, Store

__all__ = [
    "RunArgument",
    "SourceOption",
    "check_run_or_dag_run",
    "history",
    "open_store",
    "past_waits",
    "runtime_of",
    "settings",
]

RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Run id, or the beginning of its uid (see `list`).")
]
SourceOption = Annotated[
    str,
    typer.Option(
        metavar="ID",
        help="For --dag-run: of this deployment (see `list -o json`), where several share the store.",
    ),
]


def check_run_or_dag_run(run: str, dag_run: tuple[str, str] | None, *, source: str) -> None:
    """Raise InputError unless either a run is named, or a DAG run, maybe with its deployment."""
    if bool(run) == (dag_run is not None):
        raise fail("RUN", "name one", code="missing", allowed=["RUN", "--dag-run DAG RUN"])
    if source and dag_run is None:
        raise fail("--source", "names the deployment of a DAG run: give --dag-run", value=source)


def settings() -> Settings:
    """Return the settings; raises InputError for what cannot be read."""
    try:
        return load_settings()
    except ValueError as error:
        raise InputError.of(
            code="wrong_type", field="", message=str(error), path="configuration"
        ) from None


def open_store() -> Store:
    """Return the store that the settings name; the first use of a database upgrades it."""
    from airflow_training.state import store

    settings()  # says what is wrong with them before the store trips over it
    return store.open_store()


def runtime_of(record: RunRecord, store: Store) -> Runtime:
    """Return where a run's instances are."""
    from airflow_training.supervise.runtimes import make_runtime

    return make_runtime(record.runtime, settings(), connection=store.job(record.uid).connection)


def history() -> History:
    """Return where a plan finds what runs measured: nowhere, if there is no store or it is away."""
    from airflow_training.admission.plan.history import NO_HISTORY, history_of
    from airflow_training.errors import RuntimeUnavailable
    from airflow_training.state.upgrade import check

    try:
        revision, _ = check(settings().sql_alchemy_conn)
    except RuntimeUnavailable as error:
        note(f"warning: planned without what runs measured: {error}")
        return NO_HISTORY
    return NO_HISTORY if revision is None else history_of(open_store())


def past_waits(job: ResolvedJob) -> Sequence[float]:
    """Return how long earlier runs of a job waited: none, if there is no store or it is away."""
    from airflow_training.errors import RuntimeUnavailable
    from airflow_training.state.upgrade import check

    try:
        revision, _ = check(settings().sql_alchemy_conn)
        return () if revision is None else open_store().past_waits(job)
    except RuntimeUnavailable:
        return ()

"""A submission that is laid out becomes a DAG run of the generic DAG, which Airflow drives like any other."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from airflow_training.admission.check import check_text
from airflow_training.airflow_compat import (
    DagModel,
    DagRun,
    DagRunTriggeredByType,
    Log,
    create_session,
    get_hostname,
    trigger_dag,
)
from airflow_training.cloud.protocol import CloudRunState
from airflow_training.cloud.service.launching import end_run
from airflow_training.compiler.about import GENERIC_DAG
from airflow_training.compiler.submission import submission_conf
from airflow_training.control.model import Event
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import InputError, RuntimeUnavailable
from airflow_training.runtimes.port import Runtime
from airflow_training.state.store import deployment_id, open_store
from airflow_training.triggers.access import runtime_of

__all__ = ["DagRunLauncher"]

log = logging.getLogger(__name__)

_LOCAL_EXECUTOR = "LocalExecutor"
_KEPT = ("content", "runs", "submissions")
_ENDED = {"success": "Succeeded", "failed": "Failed"}


class DagRunLauncher:
    """See `launching.RunLauncher`. Airflow knows each run id once, so that the same run is never triggered twice."""

    def __init__(self, folder: Path, *, is_shared: bool) -> None:
        """`folder`: of the service. `is_shared`: somebody has said that all machines reach it."""
        self._folder = folder
        self._is_shared = is_shared

    def check(self, document: Mapping[str, Any], *, run_id: str, folder: Path, by: str) -> None:  # noqa: ARG002 - the protocol's
        """See `RunLauncher`; raises InputError too where nothing that is sent here would run."""
        if not self._is_shared:
            _refuse_several_machines(self._folder)
        _make_folder(self._folder)
        checked = check_text(
            json.dumps(document),
            path="submission",
            params={},
            variables={"run_id": run_id},
            run_uid=self.key(run_id).uid,
            source="form",  # as `plan` will check it
            user=by,
        )[0]
        if checked.resolved is None:
            raise InputError(problems=checked.problems)
        runtime_of(checked.resolved)  # what this deployment does not let Airflow open
        _refuse_without_dag()

    def begin(
        self,
        document: Mapping[str, Any],
        *,
        run_id: str,
        folder: Path,  # noqa: ARG002 - the protocol's
        state_folder: Path,  # noqa: ARG002 - the protocol's
        by: str,
        events: Sequence[Event],
    ) -> None:
        """See `RunLauncher`."""
        job = json.dumps(document)
        try:
            known = _dag_run(run_id)
            if known is None:
                if open_store().run(self.key(run_id).uid) is not None:
                    return  # it began, and whoever deleted its DAG run since wants no other
                known = _trigger(run_id, conf={"job": job, **submission_conf(events)}, by=by)
        except SQLAlchemyError as error:
            raise _no_answer(error) from error
        if (known.conf or {}).get("job") != job:
            raise InputError.of(
                code="conflict",
                field="run",
                value=run_id,
                message=f"the DAG {GENERIC_DAG} has another run of this id; nothing was executed",
            )

    def key(self, run_id: str) -> RunKey:
        """See `RunLauncher`."""
        return RunKey(source=deployment_id(), dag_id=GENERIC_DAG, run_id=run_id)

    def runtime(self, job: ResolvedJob) -> Runtime:
        """See `RunLauncher`."""
        return runtime_of(job)

    def before_start(self, run_id: str) -> CloudRunState | None:
        """A DAG run whose task `plan` has not stored the training, or never will."""
        known = _dag_run(run_id)
        if known is None:
            return None
        key = self.key(run_id)
        facts = open_store().airflow
        stop = facts.stop_of(key.source, dag_id=key.dag_id, run_id=run_id)
        ended = _ENDED.get(str(known.state), "")
        if stop is not None:
            state, message = "Stopped", f"stopped by {stop['by']} before it began"
        elif ended:
            state = ended
            message = (
                facts.refusal_of(key.source, dag_id=key.dag_id, run_id=run_id)
                or f"its DAG run ended before the training began: see the log of task plan, {_page(run_id)}"
            )
        else:
            paused = _is_paused()
            state = "Pending"
            message = (
                f"the DAG {GENERIC_DAG} is paused in Airflow"
                if paused
                else f"its DAG run is {known.state!s} in Airflow"
            )
        over = state != "Pending"
        return CloudRunState(
            run_id=run_id,
            uid=key.uid,
            state=state,
            over=over,
            exit_code=int(state != "Succeeded") if over else None,
            message=message,
        )

    def stop(self, run_id: str, by: str) -> None:
        """See `RunLauncher`; a DAG run that has not begun is refused by its task `plan`."""
        key = self.key(run_id)
        if end_run(key, by=by):
            return
        if _dag_run(run_id) is None:
            raise KeyError(run_id)
        open_store().airflow.save_stop(
            key.source, dag_id=key.dag_id, run_id=run_id, reason="Stopped", by=by
        )
        end_run(key, by=by)  # where `plan` has stored it in between


def _trigger(run_id: str, *, conf: Mapping[str, Any], by: str) -> Any:
    """Return the DAG run; its entry in the audit log is the one that Airflow's REST API writes."""
    try:
        with create_session() as session:
            made = trigger_dag(
                dag_id=GENERIC_DAG,
                run_id=run_id,
                conf={**conf},
                triggered_by=DagRunTriggeredByType.REST_API,
                triggering_user_name=by,
                session=session,
            )
            session.add(
                Log(
                    event="trigger_dag_run",
                    dag_id=GENERIC_DAG,
                    run_id=run_id,
                    owner=by,
                    owner_display_name=by,
                    extra=json.dumps({"dag_run_id": run_id, "by": "airflow-training cloud"}),
                )
            )
    except (IntegrityError, AirflowException, ValueError) as error:
        found = _dag_run(run_id)
        if found is None:  # else another API server was faster
            why = _no_answer(error) if isinstance(error, SQLAlchemyError) else error
            raise RuntimeUnavailable(f"Airflow makes no DAG run {run_id}: {why}") from error
        return found
    return made


def _dag_run(run_id: str) -> Any:
    """Raises RuntimeUnavailable."""
    try:
        return DagRun.find_duplicate(dag_id=GENERIC_DAG, run_id=run_id)
    except SQLAlchemyError as error:
        raise _no_answer(error) from error


def _no_answer(error: SQLAlchemyError) -> RuntimeUnavailable:
    """Without SQLAlchemy's own words: they have the statement, with the values of a program's variables."""
    log.error("Airflow's database does not answer: %s", type(error).__name__)
    return RuntimeUnavailable(f"Airflow's database does not answer: {type(error).__name__}")


def _is_paused() -> bool:
    dag: Any = DagModel.get_dagmodel(GENERIC_DAG)
    return dag is not None and bool(dag.is_paused)


def _page(run_id: str) -> str:
    server = conf.get("api", "base_url", fallback="").rstrip("/")
    return f"{server}/dags/{GENERIC_DAG}/runs/{run_id}"


def _refuse_without_dag() -> None:
    """Raise InputError where a DAG run would never start."""
    dag: Any = DagModel.get_dagmodel(GENERIC_DAG)
    if dag is None or dag.is_stale:
        raise InputError.of(
            code="not_found",
            field="target",
            value=GENERIC_DAG,
            message=f"this Airflow has no DAG {GENERIC_DAG}, which runs what is sent",
            hint="its administrator puts `dag = generic_dag()` into the DAGs folder",
        )
    if dag.is_paused:
        raise InputError.of(
            code="not_allowed",
            field="target",
            value=GENERIC_DAG,
            message=f"the DAG {GENERIC_DAG} is paused in this Airflow: nothing that is sent would start",
            hint=f"airflow dags unpause {GENERIC_DAG}",
        )


def _refuse_several_machines(folder: Path) -> None:
    """Raise InputError where others than this machine run what is sent, as far as can be told."""
    executors = [each.rpartition(":")[2] for each in conf.get("core", "executor").split(",")]
    remote = [
        each for each in executors if each.strip().rpartition(".")[2] not in ("", _LOCAL_EXECUTOR)
    ]
    configured: Callable[[], str] = get_hostname  # it has no types
    here = {socket.gethostname(), socket.getfqdn(), configured()}
    hosts = [each for each in open_store().airflow.triggerers(deployment_id()) if each not in here]
    why = [f"tasks run by {each.strip()}" for each in remote]
    why += [f"a triggerer is on {each}" for each in hosts]
    if why:
        raise InputError.of(
            code="missing",
            field="[training] cloud_folder",
            value=str(folder),
            message=f"is not set, and other machines would not see {folder} of the API server: {', '.join(why)}",
            hint="its administrator sets it to a folder that API servers, workers and triggerers share",
        )


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # programs and values of variables
        for name in _KEPT:  # where an administrator has made the folder, others may enter it
            (folder / name).mkdir(exist_ok=True, mode=0o770)
    except OSError as error:
        raise InputError.of(
            code="not_allowed",
            field="[training] cloud_folder",
            value=str(folder),
            message=f"{folder} cannot be written by the API server: {error.strerror}",
            hint="its administrator makes it writable",
        ) from None

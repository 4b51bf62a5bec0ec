"""Runs that are started again in Airflow: by its own REST API, inside this process and as the user who asks.

So Airflow decides who may, checks the parameters, and writes its audit log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any
from urllib.parse import quote

import httpx
from fastapi import HTTPException, Request

from airflow_training.admission.request import Source
from airflow_training.airflow_compat import AIRFLOW
from airflow_training.compiler.about import GENERIC_DAG
from airflow_training.compiler.resume import RESUME_KEY
from airflow_training.documents.resolved import RunKey
from airflow_training.runtimes.registry import adapters
from airflow_training.state.records import RunRecord
from airflow_training.state.store import deployment_id
from airflow_training.web.new_runs import ClusterConnection, refuse_simulated, trial_name

__all__ = ["AirflowRuns"]

_PASSED_ON = ("authorization", "cookie", "referer")
_SECONDS = 60.0
_MOST_CONNECTIONS = 100


class AirflowRuns:
    """See `new_runs.NewRuns`."""

    document_source: Source = "form"

    def refusal(self, run: RunRecord) -> str:
        """Return why not; see `NewRuns.refusal`."""
        if not run.key.dag_id:
            command = f"airflow-training run --from-run {run.key.run_id}"
            return f"a run of the command line is started again there: {command}"
        return refuse_simulated(run)

    def key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of the same group in a new DAG run."""
        return RunKey(
            source=run.key.source,
            dag_id=run.key.dag_id,
            run_id=f"again__{digest}",
            group_id=run.key.group_id,
            map_index=run.key.map_index,
        )

    async def begin(
        self, request: Request, run: RunRecord, run_id: str, *, resume: Mapping[str, Any] | None
    ) -> None:
        """Trigger a DAG run with the `conf` of the run's own; Airflow knows whether it is there already."""
        conf: dict[str, Any]
        async with _client(request) as airflow:
            old = await airflow.get(f"{_runs_of(run.key.dag_id)}/{quote(run.key.run_id, safe='')}")
            conf = {**(_answer(old).get("conf") or {})}
            if resume is not None:
                conf[RESUME_KEY] = {**resume}
            note = f"again: {run.key.run_id}"
            await _trigger(airflow, run.key.dag_id, run_id, conf=conf, note=note)

    def document_key(self, run: RunRecord, digest: str) -> RunKey:
        """Return the key of a run of the generic DAG."""
        return RunKey(source=run.key.source, dag_id=GENERIC_DAG, run_id=f"edited__{digest}")

    async def begin_document(
        self, request: Request, run: RunRecord, run_id: str, *, document: str
    ) -> None:
        """Trigger the generic DAG, as its form does."""
        async with _client(request) as airflow:
            conf = {"job": document}
            note = f"edited: {run.key.run_id}"
            await _trigger(airflow, GENERIC_DAG, run_id, conf=conf, note=note)

    def new_key(self, job: str, digest: str) -> RunKey:  # noqa: ARG002 - Airflow's run has no name of the job
        """Return the key of a run of the generic DAG."""
        return RunKey(source=deployment_id(), dag_id=GENERIC_DAG, run_id=f"new__{digest}")

    def trial_key(self, job: str, tuning: str, number: int, trials: int) -> RunKey:
        """Return the key of a run of the generic DAG."""
        run_id = f"{job}-{trial_name(tuning, number, trials)}"
        return RunKey(source=deployment_id(), dag_id=GENERIC_DAG, run_id=run_id)

    async def begin_new(
        self,
        request: Request,
        run_id: str,
        *,
        document: str,
        base_dir: str,  # noqa: ARG002 - a document of a form names no files of the server
        params: Mapping[str, Any] | None = None,
    ) -> None:
        """Trigger the generic DAG, as its form does."""
        conf: dict[str, Any] = {"job": document}
        if params:
            conf["parameters"] = {**params}
        async with _client(request) as airflow:
            await _trigger(airflow, GENERIC_DAG, run_id, conf=conf, note="new training")

    async def connections(self, request: Request) -> Sequence[ClusterConnection]:
        """Return Airflow's connections to clusters that the user may see; none where they may see no connection."""
        async with _client(request) as airflow:
            answer = await airflow.get("/api/v2/connections", params={"limit": _MOST_CONNECTIONS})
        if not answer.is_success:
            return ()
        types = {each.connection_type for each in adapters()} - {""}
        return [
            ClusterConnection(name=each["connection_id"], kind=each["conn_type"])
            for each in answer.json().get("connections", ())
            if each["conn_type"] in types
        ]


def _client(request: Request) -> httpx.AsyncClient:
    """Return what asks Airflow's API as the user who asks here."""
    return httpx.AsyncClient(
        transport=httpx.ASGITransport(app=request.scope[AIRFLOW]),
        base_url="http://airflow",
        headers={
            name: value for name in _PASSED_ON if (value := request.headers.get(name)) is not None
        },
        timeout=_SECONDS,
    )


def _runs_of(dag_id: str) -> str:
    return f"/api/v2/dags/{quote(dag_id, safe='')}/dagRuns"


async def _trigger(
    airflow: httpx.AsyncClient,
    dag_id: str,
    run_id: str,
    *,
    conf: Mapping[str, Any],
    note: str,
) -> None:
    made = await airflow.post(
        _runs_of(dag_id),
        json={
            "dag_run_id": run_id,
            "logical_date": datetime.now(timezone.utc).isoformat(),
            "conf": conf,
            "note": note,
        },
    )
    if made.status_code != httpx.codes.CONFLICT:  # else the same request came before
        _answer(made)


def _answer(response: httpx.Response) -> Mapping[str, Any]:
    """Return what Airflow said; what it refuses is refused in its words."""
    if response.is_success:
        found: Mapping[str, Any] = response.json()
        return found
    try:
        detail = response.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = response.text
    code = response.status_code if response.is_client_error else httpx.codes.BAD_GATEWAY
    raise HTTPException(code, f"Airflow: {detail}")

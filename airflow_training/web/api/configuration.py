"""With what a run was configured. Every handler runs in a thread."""

from __future__ import annotations

from fastapi import APIRouter, Depends, HTTPException
from fastapi.responses import PlainTextResponse, Response

from airflow_training.admission.trainer.packing import packed_archive
from airflow_training.documents.loading import dump_yaml
from airflow_training.state.store import open_store
from airflow_training.web.configuration import ConfigurationAnswer, configuration
from airflow_training.web.rights import RunDep, read

__all__ = ["router"]

router = APIRouter()


@router.get("/dags/{dag}/trainings/{uid}/document", dependencies=[Depends(read)])
def document(run: RunDep) -> PlainTextResponse:
    """Return the job file as it ran."""
    return PlainTextResponse(dump_yaml(dict(open_store().job(run.uid).document)))


@router.get("/dags/{dag}/trainings/{uid}/package", dependencies=[Depends(read)])
def package(run: RunDep) -> Response:
    """Return the training as a zip that runs on one machine without this package; 422 for a run without `spec.trainer`."""
    job = open_store().job(run.uid)
    headers = {"Content-Disposition": f'attachment; filename="{job.name}.zip"'}
    return Response(packed_archive(job), media_type="application/zip", headers=headers)


@router.get("/dags/{dag}/trainings/{uid}/configuration", dependencies=[Depends(read)])
def training_configuration(run: RunDep) -> ConfigurationAnswer:
    """Return the document of a run, and who gave each value that it need not hold."""
    store = open_store()
    state = store.read([run.uid]).get(run.uid)
    if state is None:
        raise HTTPException(404, f"there is no training {run.uid} here")
    return configuration(state, software=store.environments.software(run.uid))

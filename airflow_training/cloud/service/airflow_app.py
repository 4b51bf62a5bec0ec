"""The service inside Airflow's API server: users, rights and DAG runs are Airflow's."""

from __future__ import annotations

from starlette.types import ASGIApp

from airflow_training.cloud.service.airflow_admission import AirflowAdmission
from airflow_training.cloud.service.airflow_launcher import DagRunLauncher
from airflow_training.cloud.service.app import cloud_app
from airflow_training.cloud.service.submissions import Submissions
from airflow_training.settings import load_settings, option_text

__all__ = ["airflow_app"]


def airflow_app(*, mounted_at: str) -> ASGIApp:
    """The app, over the store and the folder of `[training]`; several API servers may serve it at once.

    Environments that are built lie in that folder too, where those find them who run the programs.
    """
    settings = load_settings()
    folder = settings.cloud_folder
    admission = AirflowAdmission()
    launcher = DagRunLauncher(folder, is_shared=bool(option_text("cloud_folder")))
    submissions = Submissions(
        folder,
        admission,
        launcher,
        same_machine=False,
        environments=folder / "environments",
        resources=dict(settings.cloud_resources),
    )
    return cloud_app(submissions, admission, mounted_at=mounted_at)

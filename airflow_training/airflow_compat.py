"""Every private part of Airflow that this package uses, and which Airflow it works with.

A part is private where Airflow's documentation does not name its module. `PARTS` says where each
lies and since which version of Airflow it has been there in the form that is used here. A name of
the table is looked up in Airflow whenever this module is asked for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from airflow.api.common.trigger_dag import trigger_dag
    from airflow.api_fastapi.app import get_auth_manager
    from airflow.api_fastapi.auth.managers.models.resource_details import (
        DagAccessEntity,
        DagDetails,
    )
    from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
    from airflow.jobs.job import Job, JobState
    from airflow.models.dag import DagModel
    from airflow.models.dagrun import DagRun
    from airflow.models.log import Log
    from airflow.models.pool import Pool
    from airflow.sdk.definitions._internal.contextmanager import DagContext, TaskGroupContext
    from airflow.sdk.definitions.param import ParamsDict
    from airflow.sdk.execution_time.comms import GetTaskStates, TaskStatesResult
    from airflow.sdk.execution_time.context import InletEventsAccessor
    from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS
    from airflow.utils.net import get_hostname
    from airflow.utils.session import create_session
    from airflow.utils.types import DagRunTriggeredByType

__all__ = [
    "AIRFLOW",
    "OLDEST",
    "PARTS",
    "SUPERVISOR_COMMS",
    "DagAccessEntity",
    "DagContext",
    "DagDetails",
    "DagModel",
    "DagRun",
    "DagRunTriggeredByType",
    "GetTaskStates",
    "GetUserDep",
    "InletEventsAccessor",
    "Job",
    "JobState",
    "Log",
    "ParamsDict",
    "Pool",
    "TaskGroupContext",
    "TaskStatesResult",
    "check_airflow",
    "create_session",
    "get_auth_manager",
    "get_hostname",
    "requires_access_dag",
    "task_module",
    "trigger_dag",
]

AIRFLOW = "airflow_training.airflow"
"""Where the ASGI scope of a request to our pages has Airflow's own application."""
OLDEST = (3, 3)
"""The oldest Airflow whose triggers and task ends are those that the compiled DAGs need."""


class PrivatePart(NamedTuple):
    module: str
    since: str
    """Version of Airflow."""


PARTS: Mapping[str, PrivatePart] = {
    # the DAG and the task group that a `with` has open
    "DagContext": PrivatePart("airflow.sdk.definitions._internal.contextmanager", "3.0"),
    "TaskGroupContext": PrivatePart("airflow.sdk.definitions._internal.contextmanager", "3.0"),
    # parameters of a DAG that is made without calling its constructor with them
    "ParamsDict": PrivatePart("airflow.sdk.definitions.param", "3.0"),
    # what a trigger asks about the other tasks of its DAG run; with `asend`
    "SUPERVISOR_COMMS": PrivatePart("airflow.sdk.execution_time.task_runner", "3.1"),
    "GetTaskStates": PrivatePart("airflow.sdk.execution_time.comms", "3.0"),
    "TaskStatesResult": PrivatePart("airflow.sdk.execution_time.comms", "3.0"),
    # the newest event of an asset that is not among the task's declared inlets
    "InletEventsAccessor": PrivatePart("airflow.sdk.execution_time.context", "3.2"),
    # pools and living triggerers, read by the listener in the scheduler
    "Job": PrivatePart("airflow.jobs.job", "3.1"),
    "JobState": PrivatePart("airflow.jobs.job", "3.1"),
    "Pool": PrivatePart("airflow.models.pool", "3.0"),
    # rights of whoever asks a page
    "DagAccessEntity": PrivatePart(
        "airflow.api_fastapi.auth.managers.models.resource_details", "3.0"
    ),
    "requires_access_dag": PrivatePart("airflow.api_fastapi.core_api.security", "3.0"),
    "GetUserDep": PrivatePart("airflow.api_fastapi.core_api.security", "3.0"),
    "DagDetails": PrivatePart("airflow.api_fastapi.auth.managers.models.resource_details", "3.0"),
    "get_auth_manager": PrivatePart("airflow.api_fastapi.app", "3.0"),
    # the team that a DAG belongs to
    "DagModel": PrivatePart("airflow.models.dag", "3.0"),
    # DAG runs of what `cloud run` sends, and their entries in the audit log, as the REST API makes both
    "trigger_dag": PrivatePart("airflow.api.common.trigger_dag", "3.0"),
    "DagRunTriggeredByType": PrivatePart("airflow.utils.types", "3.0"),
    "DagRun": PrivatePart("airflow.models.dagrun", "3.0"),
    "Log": PrivatePart("airflow.models.log", "3.0"),
    "create_session": PrivatePart("airflow.utils.session", "3.0"),
    # whether a triggerer is on the API server's machine
    "get_hostname": PrivatePart("airflow.utils.net", "3.0"),
}


def check_airflow() -> None:
    """Raise ImportError where no Airflow is installed, or one that is too old."""
    needed = ".".join(map(str, OLDEST))
    hint = "pip install 'airflow-training[airflow]'"
    try:
        found = version("apache-airflow-core")
    except PackageNotFoundError:
        raise ImportError(
            f"Airflow {needed} or newer is needed here, and none is installed\n  hint: {hint}"
        ) from None
    if tuple(map(int, found.split(".")[:2])) < OLDEST:
        raise ImportError(
            f"airflow-training needs Airflow {needed} or newer, and Airflow {found} is installed\n"
            f"  hint: pip install --upgrade 'apache-airflow>={needed}'"
        )


def task_module(task: Any) -> str:
    """Return the module of a task's operator as a serialized DAG names it; empty where it does not.

    Since Airflow 3.0. Asked softly: an error in a listener would keep those of others from being
    called.
    """
    return str(getattr(task, "_task_module", ""))


def __getattr__(name: str) -> Any:
    if name not in PARTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(PARTS[name].module), name)

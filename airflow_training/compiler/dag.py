"""A job document as a DAG of its own: schedule, parameters, outlets, owner. Runs nothing."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import (
    DAG,
    Asset,
    AssetAll,
    AssetAny,
    CronDataIntervalTimetable,
    CronTriggerTimetable,
    Param,
)
from airflow.sdk.configuration import conf

from airflow_training.airflow_compat import ParamsDict
from airflow_training.compiler.about import about
from airflow_training.compiler.group import add_tasks, document_outlets
from airflow_training.compiler.shape import shape_of
from airflow_training.compiler.source import JobSource
from airflow_training.documents.schedules import cron_of, start_of
from airflow_training.operators.plan import PlanOperator

if TYPE_CHECKING:
    from airflow_training.documents.dag import Dag
    from airflow_training.documents.parsing import TrainingJob

__all__ = ["job_to_dag", "source_to_dag"]


def job_to_dag(job: Any, *, folder: Path | None = None) -> DAG:
    """Return the DAG of a job: its id is the job's name, its parameters are the job's.

    Schedule, start date, owner, tags and outlets come from the document's `dag`. Assign the
    result to a name of the DAG file's module, where Airflow looks for it.

    Args:
        job: A TrainingJob, its document as a mapping, or the path of a job file
            (`file.yaml#name` picks one of several jobs).
        folder: Where relative paths start; the working directory by default.

    Raises:
        InputError: with every mistake that can be seen without running anything.

    >>> dag = job_to_dag(
    ...     {
    ...         "apiVersion": "airflow-training/v1",
    ...         "kind": "TrainingJob",
    ...         "metadata": {"name": "digits"},
    ...         "spec": {
    ...             "framework": "custom",
    ...             "command": ["true"],
    ...             "roles": [{"name": "worker"}],
    ...             "dag": {"schedule": "@weekly"},
    ...         },
    ...     }
    ... )
    >>> dag.dag_id, sorted(dag.task_ids)
    ('digits', ['cleanup', 'plan', 'reconcile', 'rollup', 'worker.run'])
    """
    source = JobSource.of(job, folder=folder or Path.cwd())
    return source_to_dag(source, source.read())


def source_to_dag(source: JobSource, job: TrainingJob) -> DAG:
    """Return the DAG of a job that was already parsed."""
    from airflow_training.documents.dag import Dag

    settings = job.spec.dag or Dag()
    options: dict[str, Any] = {}
    if settings.owner:
        options["default_args"] = {"owner": settings.owner}
    with DAG(
        dag_id=job.metadata.name,
        schedule=_schedule(settings),
        start_date=_start(settings),
        tags=["training", *settings.tags],
        max_active_runs=settings.max_active_runs,
        catchup=settings.catchup,
        doc_md=about(job, source),
        **options,
    ) as dag:
        plan = PlanOperator(task_id="plan", source=source, dag_params=True, retries=0)
        add_tasks(
            shape_of(job, base_dir=source.base_dir),
            group_id="",
            plan=plan,
            outlets=document_outlets(job),
        )
    # Last: Airflow copies parameters that it knows earlier into every task, twice or more often,
    # and stores each copy. Tasks see the DAG's parameters all the same.
    dag.params = ParamsDict({name: _param(each) for name, each in settings.params.items()})
    return dag


def _schedule(settings: Dag) -> Any:
    schedule = settings.schedule
    if schedule is None or isinstance(schedule, str):
        if settings.timezone and (cron := cron_of(schedule)):
            # the kind that Airflow makes of the text alone, which takes no zone beside it
            intervals = conf.getboolean("scheduler", "create_cron_data_intervals")
            kind = CronDataIntervalTimetable if intervals else CronTriggerTimetable
            return kind(cron, timezone=settings.timezone)
        return schedule
    assets = [Asset(uri) for uri in schedule.assets]
    return AssetAny(*assets) if schedule.operator == "any" else AssetAll(*assets)


def _start(settings: Dag) -> dt.datetime | None:
    """Return the start date, in UTC where the document names no zone."""
    return start_of(settings.start_date, settings.timezone) if settings.start_date else None


_BOUNDS = {
    "minimum": "at least",
    "exclusiveMinimum": "more than",
    "maximum": "at most",
    "exclusiveMaximum": "less than",
}


def _param(param: Any) -> Param:
    """Return Airflow's own parameter: its server checks the same types and ranges.

    Bounds stand under `allOf`, where the server sees them and the form's widget does not: it would
    put the nearest allowed number in the place of what somebody typed, and say nothing.
    """
    schema = param.model_dump(mode="json", by_alias=True, exclude_unset=True)
    default = schema.pop("default", None)
    description = schema.pop("description", None)
    bounds = {key: schema.pop(key) for key in _BOUNDS if schema.get(key) is not None}
    if bounds:
        schema["allOf"] = [bounds]
        told = ", ".join(f"{_BOUNDS[key]} {value}" for key, value in bounds.items())
        description = f"{description} ({told})" if description else told
    if "default" not in param.model_fields_set:
        return Param(description=description, **schema)
    return Param(default, description=description, **schema)

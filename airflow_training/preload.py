"""Imports what tasks and triggers need before Airflow forks their processes, which then get it for free.

A LocalExecutor's workers are forks of the scheduler, each task is a fork of its worker, the trigger
runner is one of the triggerer, and each parsed file one of the DAG processor. Without this every
task start imports the models of a job, the store and the loop again: 0.4 s of CPU. An executor that
starts tasks from elsewhere gains nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

from airflow.listeners import hookimpl

__all__ = ["on_starting"]

_MODULES = (
    # parsing
    "airflow_training.compiler.loader",
    "airflow_training.frameworks.dependencies",
    "airflow_training.spec.checks",
    "airflow_training.spec.expressions",
    "airflow_training.spec.parsing",
    "airflow_training.spec.pods",
    # `plan`; `rollup` and `cleanup`
    "airflow_training.operators.admit",
    "airflow_training.operators.ending",
    "airflow_training.runtimes.local",
    # the triggers
    "airflow_training.triggers.dependency",
    "airflow_training.triggers.reconcile",
    "airflow_training.triggers.role",
)
"""Those that others import only when they need them; all the rest comes with them."""


@hookimpl
def on_starting(component: Any) -> None:
    """Import, in a component of Airflow; in the process of a task it would be too late."""
    from airflow.sdk.execution_time.task_runner import TaskRunnerMarker

    if isinstance(component, TaskRunnerMarker):
        return
    for module in _MODULES:
        importlib.import_module(module)

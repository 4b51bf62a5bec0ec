"""Declarative training jobs for Apache Airflow.

`TrainingJob` is the document, from YAML or Python. With Airflow, `training` (or `compile_job`)
makes it a task group of your DAG, `job_to_dag` a DAG of its own, and `tune` tries sets of
parameters, which may come from a `Range`. What is refused is an `airflow_training.errors.InputError`.

>>> from airflow_training import TrainingJob
>>> TrainingJob.from_text("{apiVersion: airflow-training/v1, kind: TrainingJob}")
Traceback (most recent call last):
    ...
airflow_training.errors.InputError: metadata: is required...

Names are loaded on first use, so that parsing a DAG stays cheap; an ImportError says where one
needs Airflow, and none is there or one that is too old.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.2.0"

_LAZY = {
    "Range": "airflow_training.compiler.search_space",
    "TrainingJob": "airflow_training.documents.parsing",
    "compile_job": "airflow_training.compiler.group",
    "get_provider_info": "airflow_training.provider",
    "job_to_dag": "airflow_training.compiler.dag",
    "training": "airflow_training.compiler.group",
    "tune": "airflow_training.compiler.tuning",
}
"""Public name -> module. Some of them need Airflow, which takes seconds to import."""

__all__ = ["__version__", *sorted(_LAZY)]  # noqa: PLE0604 - the table is the one truth


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_LAZY[name]), name)
    except ImportError:
        from airflow_training.airflow_compat import check_airflow

        check_airflow()
        raise

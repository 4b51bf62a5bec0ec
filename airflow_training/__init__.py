"""Declarative training jobs for Apache Airflow. Names are loaded on first use: parsing stays cheap."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "Range": "airflow_training.compiler.search_space",
    "TrainingJob": "airflow_training.spec.models",
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
    return getattr(import_module(_LAZY[name]), name)

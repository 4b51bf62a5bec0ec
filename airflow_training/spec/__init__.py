"""Room: spec. The documents: models, defaults, loading, checks, JSON Schema. Names load lazily."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_training.spec.models import TrainingJob
    from airflow_training.spec.parsing import ParsedDocument, parse

__all__ = ["ParsedDocument", "TrainingJob", "parse"]

_HOMES = {
    "ParsedDocument": "airflow_training.spec.parsing",
    "TrainingJob": "airflow_training.spec.models",
    "parse": "airflow_training.spec.parsing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

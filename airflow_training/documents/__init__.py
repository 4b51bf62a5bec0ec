"""The documents: models, defaults, loading, checks, JSON Schema. Names load lazily."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_training.documents.parsing import ParsedDocument, TrainingJob, parse

__all__ = ["ParsedDocument", "TrainingJob", "parse"]

_HOMES = {
    "ParsedDocument": "airflow_training.documents.parsing",
    "TrainingJob": "airflow_training.documents.parsing",
    "parse": "airflow_training.documents.parsing",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""The Python that a script was built on: recorded, locked, matched with what a target has, made there. No Airflow.

`record()` on one machine, `match(...)` and `prepare(...)` on the other. Names load lazily: who records needs no reader of YAML.
"""

from __future__ import annotations

TYPE_CHECKING = False  # `typing` is waited for at the start of each instance
if TYPE_CHECKING:
    from typing import Any

    from airflow_training.environments.building import prepare
    from airflow_training.environments.catalogue import EnvironmentCatalogue, catalogue_here
    from airflow_training.environments.matching import Match, match
    from airflow_training.environments.model import PythonEnvironment
    from airflow_training.environments.preparing import PreparedEnvironment
    from airflow_training.environments.recording import project_python, record, scan_program

__all__ = [
    "EnvironmentCatalogue",
    "Match",
    "PreparedEnvironment",
    "PythonEnvironment",
    "catalogue_here",
    "match",
    "prepare",
    "project_python",
    "record",
    "scan_program",
]

_HOMES = {
    "EnvironmentCatalogue": "catalogue",
    "Match": "matching",
    "PreparedEnvironment": "preparing",
    "PythonEnvironment": "model",
    "catalogue_here": "catalogue",
    "match": "matching",
    "prepare": "building",
    "project_python": "recording",
    "record": "recording",
    "scan_program": "recording",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

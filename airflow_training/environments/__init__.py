"""The Python that a script was built on: recorded, locked, matched with what a target has, made there. No Airflow.

`record()` on one machine, `match(...)` and `prepare(...)` on the other.
"""

from airflow_training.environments.building import PreparedEnvironment, prepare
from airflow_training.environments.catalogue import EnvironmentCatalogue, catalogue_here
from airflow_training.environments.matching import Match, match
from airflow_training.environments.model import PythonEnvironment
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

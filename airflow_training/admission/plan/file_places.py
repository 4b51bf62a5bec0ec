"""Where instances find the files of a plan. The loop asks for every run, so nothing of the planner is imported here."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_training.documents.resolved import ResolvedJob
from airflow_training.runtimes.registry import adapter_of

__all__ = ["FILE_OF_VARIABLE", "PLAN_FOLDER", "plan_folder", "plan_path"]

PLAN_FOLDER = "plan"
"""Of a plan's files."""
FILE_OF_VARIABLE: Mapping[str, str] = {
    "PLAN_FILE": "plan.json",
    "DEEPSPEED_CONFIG": "deepspeed.json",
    "TORCHTITAN_CONFIG": "torchtitan.toml",
}
"""Variable -> file that it names."""


def plan_path(job: ResolvedJob) -> str:
    """Return where instances of a job find its plan, as their `files` name it."""
    return f"{plan_folder(job)}/{FILE_OF_VARIABLE['PLAN_FILE']}"


def plan_folder(job: ResolvedJob) -> str:
    """Return the folder of a plan's files, as `files` of instances name it."""
    files_dir = adapter_of(job.runtime).files_dir
    return f"{files_dir}/{PLAN_FOLDER}" if files_dir else PLAN_FOLDER

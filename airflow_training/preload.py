"""Imports what tasks and triggers need before Airflow forks their processes, which then get it for free.

A LocalExecutor's workers are forks of the scheduler, each task is a fork of its worker, the trigger
runner is one of the triggerer, and each parsed file one of the DAG processor. Without this every
task start imports the models of a job, the store and the loop again: 0.4 s of CPU. An executor that
starts tasks from elsewhere gains nothing.

It begins when Airflow loads its plugins, before any fork.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["component", "preload"]

_MODULES = (
    # parsing
    "airflow_training.compiler.loader",
    "airflow_training.frameworks.dependencies",
    "airflow_training.documents.checks",
    "airflow_training.documents.expressions",
    "airflow_training.documents.parsing",
    "airflow_training.documents.pods",
    "airflow_training.admission.check",
    "airflow_training.runtimes.kubernetes.adapter",
    "airflow_training.runtimes.kubernetes.written_names",
    # `plan`; `rollup` and `cleanup`
    "airflow_training.operators.admit",
    "airflow_training.operators.ending",
    "airflow_training.runtimes.local.adapter",
    "airflow_training.runtimes.local.missing_scripts",
    "airflow_training.runtimes.local.runtime",
    # the triggers
    "airflow_training.triggers.dependency",
    "airflow_training.triggers.reconcile",
    "airflow_training.triggers.role",
)
"""Those that others import only when they need them; all the rest comes with them."""

_FORKING = frozenset({"scheduler", "triggerer", "dag-processor"})


def component(command: Sequence[str]) -> str:
    """Return which component of Airflow a process is, such as `scheduler`; empty for anything else.

    `command`: as in `sys.argv`: Airflow's own program or module, then the name of the component.
    """
    return command[1] if "airflow" in Path(command[0]).parts and len(command) > 1 else ""


def preload() -> None:
    """Import it all where processes are forked; anywhere else nobody would profit."""
    if component(sys.argv) in _FORKING:
        for module in _MODULES:
            importlib.import_module(module)

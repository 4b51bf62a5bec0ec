"""What this machine can as a runtime: known before anything starts on it."""

from __future__ import annotations

from airflow_training.runtimes.local.reasons import REASONS
from airflow_training.runtimes.port import Capabilities

__all__ = ["CAPABILITIES"]

CAPABILITIES = Capabilities(
    hold=True,
    restart_in_place=True,
    finishes=True,
    memory_limits=True,
    code=True,
    environments=True,
    replaces_files=True,
    runs_here=True,
    shares_machine=True,
    reasons=REASONS,
)

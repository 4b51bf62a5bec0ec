"""What Kubernetes can, and where pods keep things: known without asking a cluster."""

from __future__ import annotations

from airflow_training.runtimes.kubernetes.reasons import REASONS
from airflow_training.runtimes.port import Capabilities

__all__ = ["CAPABILITIES", "CODE_DIR_IN_POD", "OUTPUT_DIR_IN_POD"]

OUTPUT_DIR_IN_POD = "/training/output"
CODE_DIR_IN_POD = "/training/code"
CAPABILITIES = Capabilities(
    hold=True,
    finishes=True,
    replaces_files=True,
    gangs=("none", "volcano", "coscheduling", "kueue"),
    fixed_size_gangs=("kueue",),
    memory_limits=True,
    code=True,
    environments=True,
    leaves_objects=True,
    excludes_nodes=True,
    spares=True,
    reasons=REASONS,
)

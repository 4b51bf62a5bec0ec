"""What Slurm can as a runtime."""

from __future__ import annotations

from dataclasses import replace

from airflow_training.runtimes.port import Capabilities
from airflow_training.runtimes.slurm.reasons import REASONS

__all__ = ["CAPABILITIES", "GANG", "LOGIN_CAPABILITIES"]

GANG = "slurm"
"""All instances in one allocation."""

CAPABILITIES = Capabilities(
    hold=True,
    restart_in_place=True,
    finishes=True,
    gangs=("none", GANG),
    fixed_size_gangs=(GANG,),
    memory_limits=True,
    leaves_objects=True,
    shares_files=True,
    excludes_nodes=True,
    reasons=REASONS,
)

LOGIN_CAPABILITIES = replace(CAPABILITIES, shares_files=False)
"""Where the cluster is logged in to: its files are not those of this machine."""

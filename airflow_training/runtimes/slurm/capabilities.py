"""What Slurm can as a runtime."""

from __future__ import annotations

from airflow_training.runtimes.port import Capabilities
from airflow_training.runtimes.slurm.reasons import REASONS

__all__ = ["CAPABILITIES", "GANG"]

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
    reasons=REASONS,
)

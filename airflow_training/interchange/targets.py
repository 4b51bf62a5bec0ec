"""The documents of other systems that a job file can be written as."""

from __future__ import annotations

from enum import Enum

__all__ = ["ExportTarget"]


class ExportTarget(str, Enum):
    """A document of another system."""

    pytorchjob = "pytorchjob"
    jobset = "jobset"
    volcano = "volcano"
    sbatch = "sbatch"

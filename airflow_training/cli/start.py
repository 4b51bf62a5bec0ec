"""What `run` has understood and `hosting` carries out. Plain data: it crosses from a child."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_training.cli.output import Output
from airflow_training.errors import Problem
from airflow_training.spec.resolved import ResolvedJob, RunKey

__all__ = ["Start", "TakeUp"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """What the command line asked for, after all checks."""

    job: ResolvedJob
    warnings: tuple[Problem, ...]
    key: RunKey
    simulate: Path | None
    as_json: bool
    """Of the event lines."""
    output: Output


@dataclass(frozen=True, slots=True, kw_only=True)
class TakeUp:
    """Every open run is to be driven on."""

    output: Output

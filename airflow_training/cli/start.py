"""What `run` has understood and `hosting` carries out: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from airflow_training.cli.output import OutputFormat
from airflow_training.documents.resolved import ResolvedJob, RunKey
from airflow_training.errors import Problem

__all__ = ["ResumeOpenRuns", "StartRequest"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRequest:
    """What the command line asked for, after all checks."""

    job: ResolvedJob
    warnings: tuple[Problem, ...]
    key: RunKey
    simulate: Path | None
    as_json: bool = False
    """Of the event lines."""
    output: OutputFormat = OutputFormat.table
    logs: bool = False
    """Show what the instances print."""
    pages: bool = False
    """Serve the pages while it runs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResumeOpenRuns:
    """Every open run is to be driven on."""

    output: OutputFormat

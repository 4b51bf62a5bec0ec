"""From a job document to a run in the store: parse, check, resolve, prove, enqueue."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from airflow_training.errors import Problem
from airflow_training.spec.resolved import ResolvedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """One document of a file after every check that needs no runtime."""

    path: str
    problems: Sequence[Problem]
    """Errors; empty when valid."""
    warnings: Sequence[Problem]
    resolved: ResolvedJob | None
    """None when there are errors."""
    defaults: Sequence[Mapping[str, Any]] = ()
    """`[{field, value, from}]` as `explain` prints it; from: user | framework | airflow-training."""


def check_file(
    path: str | Path,
    *,
    params: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    fetch: bool = False,
    run_uid: str = "",
) -> Sequence[Checked]:
    """Check every document of a file. `overrides`: `--set path=value`. Raises nothing for bad input."""
    raise NotImplementedError


def check_text(
    text: str,
    *,
    path: str = "<text>",
    base_dir: str = "",
    params: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
    variables: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    fetch: bool = False,
    run_uid: str = "",
) -> Sequence[Checked]:
    """As `check_file`, for text."""
    raise NotImplementedError

"""A user's own measured rows to constants of the cost model, and those constants as a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from airflow_training.errors import InputError
from airflow_training.planning.cost.constants import FROZEN, TimeConstants, read
from airflow_training.planning.cost.refining import StepTiming, predicted
from airflow_training.planning.sources.documents import parse_row
from airflow_training.planning.view.plan import Workload
from airflow_training.planning.view.transformer import computation

__all__ = ["chosen_constants", "constants_document", "mean_error", "measured_rows"]


def measured_rows(documents: Iterable[tuple[int, Any]]) -> list[StepTiming]:
    """Return the rows that tell how long a step took; those that ran out of memory are left out.

    `documents`: line number and row, in the schema of `plan estimate` with
    `measured: {step_time_s}`. Raises InputError naming the line of the first bad row.
    """
    rows = []
    for line, document in documents:
        measured = document.get("measured") if isinstance(document, Mapping) else None
        seconds = measured.get("step_time_s") if isinstance(measured, Mapping) else None
        if seconds is None:
            continue
        try:
            row = parse_row(document, unknown="ignore")
            if isinstance(seconds, bool) or not isinstance(seconds, int | float) or seconds <= 0:
                message = "must be seconds above 0"
                raise InputError.of(
                    code="out_of_range", field="measured.step_time_s", message=message
                )
        except InputError as error:
            raise InputError(problems=error.problems, path=f"line {line}") from None
        rows.append(
            StepTiming(
                workload=Workload(
                    view=computation(row.model),
                    global_batch=row.strategy.global_batch,
                    precision=row.strategy.precision,
                    runtime=row.runtime,
                ),
                cluster=row.cluster,
                strategy=row.strategy,
                step_seconds=float(seconds),
            )
        )
    return rows


def mean_error(rows: Sequence[StepTiming], constants: TimeConstants) -> float:
    """Return the mean absolute error of the estimates, as a share of what was measured."""
    measured = [row.step_seconds for row in rows]
    return float(np.mean(np.abs(predicted(rows, constants) / measured - 1.0)))


def constants_document(constants: TimeConstants, *, source: str) -> dict[str, Any]:
    """Return constants in the form of the shipped file; `source` is said of those that moved."""
    return {
        each.name: {
            "value": _plain(getattr(constants, each.name)),
            "source": "shipped"
            if getattr(constants, each.name) == getattr(FROZEN, each.name)
            else source,
        }
        for each in fields(TimeConstants)
    }


def chosen_constants(path: str) -> TimeConstants:
    """Return the constants of a file, the shipped ones where none is named; raises InputError."""
    return _read(Path(path)) if path else FROZEN


def _read(path: Path) -> TimeConstants:
    try:
        return read(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError) as error:
        said = error.strerror if isinstance(error, OSError) else "is no file of `plan calibrate`"
        raise InputError.of(
            code="unreadable",
            field="",
            message=str(said),
            hint="airflow-training plan calibrate",
            path=str(path),
        ) from None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value

"""Rows of `plan estimate` (a model, a cluster, a strategy each) to what they are expected to take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

from airflow_training.errors import InputError
from airflow_training.planning.answers.report import estimate_document
from airflow_training.planning.cost.constants import FROZEN, TimeConstants
from airflow_training.planning.cost.estimating import estimate
from airflow_training.planning.sources.documents import EstimateRequest, parse_row
from airflow_training.planning.view.capacity import missing_devices
from airflow_training.planning.view.computation import ComputationView
from airflow_training.planning.view.plan import Estimate, Workload
from airflow_training.planning.view.strategy import TransformerModel
from airflow_training.planning.view.transformer import computation

__all__ = ["answer", "answers", "estimate_row"]

ANSWERED = ("step_time_s", "p10", "p90", "peak_memory_bytes", "fits", "breakdown")


def answers(
    documents: Iterable[Any], constants: TimeConstants = FROZEN
) -> Iterator[dict[str, Any]]:
    """Return the answer of each row, in order.

    A row that makes no sense does not keep the others from their answers: its own is
    `{"id", "error"}`, and the error names every mistake.
    """
    return (_answer_or_error(document, constants) for document in documents)


def answer(document: Any, constants: TimeConstants = FROZEN) -> dict[str, Any]:
    """Return `{"id", "step_time_s", "p10", "p90", "peak_memory_bytes", "fits", "breakdown"}`.

    Keys nobody knows are ignored, and `measured` is never read.

    Raises:
        InputError: with every mistake of the row.
    """
    row = parse_row(document, unknown="ignore")
    found = estimate_row(row, constants)
    estimated = estimate_document(found)
    return {"id": row.id, **{key: estimated[key] for key in ANSWERED}}


def estimate_row(row: EstimateRequest, constants: TimeConstants = FROZEN) -> Estimate:
    """Estimate of the strategy of one measured row.

    Batches and widths that do not divide are rounded up, as the slowest device has to.

    Raises:
        InputError: the strategy has more stages than the model has layers, or takes devices that the
            cluster has not.
    """
    problems = missing_devices(row.strategy, row.cluster)
    if problems:
        raise InputError(problems)
    workload = Workload(
        view=_view(row.model),
        global_batch=row.strategy.global_batch,
        precision=row.strategy.precision,
        runtime=row.runtime,
    )
    return estimate(workload, row.cluster, row.strategy, constants)


def _answer_or_error(document: Any, constants: TimeConstants) -> dict[str, Any]:
    try:
        return answer(document, constants)
    except InputError as error:
        name = document.get("id") if isinstance(document, Mapping) else None
        return {"id": name, "error": str(error)}


@lru_cache(maxsize=64)
def _view(model: TransformerModel) -> ComputationView:
    """Return one view per model: what is worked out about a view is remembered with it."""
    return computation(model)

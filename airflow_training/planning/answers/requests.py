"""Requests of `plan search` (a model, a cluster, a batch each) to the plans that answer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from airflow_training.errors import InputError
from airflow_training.planning.answers.report import strategy_document
from airflow_training.planning.search import constraints, objectives, search
from airflow_training.planning.search.constraints import Constraints
from airflow_training.planning.search.objectives import Objective
from airflow_training.planning.search.pricing import Pricing
from airflow_training.planning.search.searching import MODEL
from airflow_training.planning.sources.documents import parse_cluster, parse_model
from airflow_training.planning.sources.reading import Document, Mistakes, read
from airflow_training.planning.view.cluster import ClusterView
from airflow_training.planning.view.plan import Estimate, Workload
from airflow_training.planning.view.strategy import Precision
from airflow_training.planning.view.transformer import computation

__all__ = ["SearchRequest", "answer", "answers", "parse_request"]


class _RequestDocument(Document):
    id: str | int
    model: dict[str, Any]
    cluster: dict[str, Any]
    global_batch: Annotated[int, Field(ge=1)]
    precision: Precision = "bf16"
    constraints: dict[str, Any] = Field(default_factory=dict)
    objective: Any = "time"
    runtime: str = "generic"
    top_k: Annotated[int, Field(ge=1)] = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest:
    """One question of `plan search`."""

    id: str | int
    workload: Workload
    cluster: ClusterView
    constraints: Constraints
    objective: Objective
    top_k: int


def answers(
    documents: Iterable[Any], *, pricing: Pricing = MODEL, clock: Callable[[], float]
) -> Iterator[dict[str, Any]]:
    """Return the answer of each request, in order; `clock` tells the seconds that each one takes.

    A request that makes no sense, or that nothing fits, does not keep the others from their
    answers: its own is `{"id", "error"}`, and the error names every mistake.
    """
    for document in documents:
        started = clock()
        try:
            found = answer(parse_request(document), pricing=pricing)
        except InputError as error:
            name = document.get("id") if isinstance(document, Mapping) else None
            yield {"id": name, "error": str(error)}
        else:
            yield {**found, "seconds": round(clock() - started, 3)}


def parse_request(document: Any) -> SearchRequest:
    """Return a request; raises InputError with every mistake, unknown keys among them."""
    asked = read(_RequestDocument, document)
    mistakes = Mistakes()
    model, cluster, rules, objective = None, None, None, None
    with mistakes:
        model = parse_model(asked.model)
    with mistakes:
        cluster = parse_cluster(asked.cluster)
    with mistakes:
        rules = constraints.parse(asked.constraints)
    with mistakes:
        objective = objectives.parse(asked.objective)
    if model is None or cluster is None or rules is None or objective is None:
        raise InputError(problems=mistakes)
    return SearchRequest(
        id=asked.id,
        workload=Workload(
            view=computation(model),
            global_batch=asked.global_batch,
            precision=asked.precision,
            runtime=asked.runtime,
        ),
        cluster=cluster,
        constraints=rules,
        objective=objective,
        top_k=asked.top_k,
    )


def answer(request: SearchRequest, *, pricing: Pricing = MODEL) -> dict[str, Any]:
    """Return `{"id", "plans", "evaluated"}`, the best plan first; raises InputError if none fits."""
    found = search(
        request.workload,
        request.cluster,
        constraints=request.constraints,
        objective=request.objective,
        top_k=request.top_k,
        pricing=pricing,
    )
    plans = [
        _plan(estimate, placement)
        for estimate, placement in zip(found.plans, found.placement, strict=True)
    ]
    return {"id": request.id, "plans": plans, "evaluated": found.evaluated}


def _plan(estimate: Estimate, placement: Mapping[str, object]) -> dict[str, Any]:
    plan = {
        "strategy": strategy_document(estimate.strategy),
        "step_time_s": estimate.step_seconds,
        "peak_memory_bytes": estimate.memory_bytes,
        "placement": dict(placement),
    }
    price = estimate.price_per_step
    return plan if price is None else {**plan, "price_per_step": price}

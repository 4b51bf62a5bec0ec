"""Plans and estimates as plain JSON data: what the store keeps, and what commands and `status` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from airflow_training.planning.view.plan import (
    BreakdownLine,
    Estimate,
    RejectedStrategy,
    SearchResult,
)
from airflow_training.planning.view.strategy import Strategy

__all__ = ["answer_document", "estimate_document", "plan_document", "strategy_document"]


def strategy_document(strategy: Strategy) -> dict[str, Any]:
    """Return every part of a strategy; lists instead of tuples."""
    values = {each.name: getattr(strategy, each.name) for each in fields(Strategy)}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in values.items()
    }


def estimate_document(estimate: Estimate) -> dict[str, Any]:
    """Return an estimate without its strategy: seconds, bytes, and their breakdown."""
    return {
        "step_time_s": estimate.step_seconds,
        "p10": estimate.p10,
        "p90": estimate.p90,
        "peak_memory_bytes": estimate.memory_bytes,
        "fits": bool(estimate.fits),
        "price_per_step": estimate.price_per_step,
        "breakdown": {"time_s": _parts(estimate.time), "memory_bytes": _parts(estimate.memory)},
        "stages": [
            {"memory_bytes": used, "device_memory_bytes": limit}
            for used, limit in estimate.stage_memory
        ],
    }


def plan_document(
    estimate: Estimate, placement: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return a plan: a strategy, its estimate, and where it lies on the cluster."""
    return {
        "strategy": strategy_document(estimate.strategy),
        "devices": estimate.strategy.devices,
        **estimate_document(estimate),
        "placement": dict(placement or {}),
    }


def answer_document(answer: SearchResult) -> dict[str, Any]:
    """Return the whole answer of a search, best plan first."""
    places: Sequence[Mapping[str, object] | None] = [
        *answer.placement,
        *[None] * (len(answer.plans) - len(answer.placement)),
    ]
    return {
        "plans": [
            plan_document(each, place) for each, place in zip(answer.plans, places, strict=False)
        ],
        "rejected": [_rejected(each) for each in answer.rejected],
        "front": [plan_document(each) for each in answer.front],
        "evaluated": answer.evaluated,
        "seconds": answer.seconds,
        "warnings": list(answer.warnings),
    }


def _parts(parts: Sequence[BreakdownLine]) -> list[dict[str, Any]]:
    return [{"name": each.name, "value": each.value, "origin": each.origin} for each in parts]


def _rejected(each: RejectedStrategy) -> dict[str, Any]:
    return {
        "family": dict(each.family),
        "candidates": each.candidates,
        "reason": each.reason,
        "by": each.by,
    }

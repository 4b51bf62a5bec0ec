"""Whether a training has done enough, as its job says in `stop`. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence

from airflow_training.control import reasons
from airflow_training.control.draft import Draft
from airflow_training.control.ending import finish
from airflow_training.control.observations import Observations
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.stop_conditions import (
    Over,
    StopComparison,
    StopCondition,
    parse_condition,
)

__all__ = ["check_stop_condition", "condition_holds"]

_OPERATORS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": operator.eq,
    "!=": operator.ne,
}
_OVER: Mapping[str, Callable[[Sequence[float]], float]] = {
    "rank 0": lambda values: values[0],
    "mean": lambda values: sum(values) / len(values),
    "max": max,
    "min": min,
}


def check_stop_condition(draft: Draft, observations: Observations) -> None:
    """End a job as succeeded whose condition holds; its instances get their grace, in which they may save."""
    stop = draft.spec.stop_until
    if not stop or draft.job.state != "Running":
        return
    reports = _reports(draft, observations)
    met = condition_holds(
        parse_condition(stop),
        reports,
        over=draft.spec.stop_over,
        ranks=sum(role.replicas for role in draft.spec.roles if role.rank_offset is not None),
    )
    if met:
        finish(
            draft,
            "Succeeded",
            reason=reasons.STOP_CONDITION_MET,
            message=f"stop.until holds: {met}",
        )


def condition_holds(
    condition: StopCondition,
    reports: Mapping[int, ProgressReport],
    *,
    over: Over,
    ranks: int,
) -> str:
    """What holds, with the values, as `loss 0.08 < 0.1`; empty where it does not hold.

    `reports`: the newest of each rank of the running attempt. What a rank has not told yet, or NaN, holds
    nowhere; over all ranks, each of them has to have told it.
    """
    for group in condition.any_of:
        values = [_value(each, reports, over=over, ranks=ranks) for each in group]
        pairs = list(zip(group, values, strict=True))
        if all(
            value is not None and _OPERATORS[each.operator](value, each.number)
            for each, value in pairs
        ):
            return " and ".join(
                f"{each.metric} {value:g} {each.operator} {each.number:g}" for each, value in pairs
            )
    return ""


def _value(
    comparison: StopComparison,
    reports: Mapping[int, ProgressReport],
    *,
    over: Over,
    ranks: int,
) -> float | None:
    chosen = comparison.over or over
    wanted = (0,) if chosen == "rank 0" else range(ranks)
    values = [
        value
        for rank in wanted
        if rank in reports and (value := _told(reports[rank], comparison.metric)) is not None
    ]
    if not values or len(values) < len(wanted):
        return None
    return _OVER[chosen](values)


def _told(report: ProgressReport, metric: str) -> float | None:
    """What a rank has told last; a NaN is not a value, and would differ from every number."""
    match metric:
        case "step":
            value: float | None = report.step
        case "epoch":
            value = report.epoch
        case "samples":
            value = report.samples
        case _:
            value = report.metrics.get(metric)
    return None if value is None or math.isnan(value) else value


def _reports(draft: Draft, observations: Observations) -> Mapping[int, ProgressReport]:
    """The newest report of each rank, of the attempts that run."""
    offsets = {role.name: role.rank_offset for role in draft.spec.roles}
    found = {}
    for each in observations.instances:
        entry, offset = draft.instances.get(each.key), offsets.get(each.key.role)
        if entry is None or offset is None or each.progress is None:
            continue
        if entry.state == "running" and entry.attempt_id == each.attempt_id:
            found[offset + each.key.index] = each.progress
    return found

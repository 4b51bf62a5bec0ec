"""Whether a training has done enough, as its job says in `stop`. Pure."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from airflow_training.control import reasons
from airflow_training.control.actions import Finish
from airflow_training.control.draft import Draft
from airflow_training.control.ending import finish
from airflow_training.control.failures import Failure
from airflow_training.control.model import StopVerdict
from airflow_training.control.observations import Observations
from airflow_training.control.recovery import save_grace
from airflow_training.control.reports import ProgressReport
from airflow_training.documents.instances import InstanceKey
from airflow_training.documents.stop_conditions import (
    Over,
    StopComparison,
    StopCondition,
    parse_condition,
)

__all__ = ["await_finish", "check_stop_condition", "condition_holds", "order_finish"]

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
    """End a job as succeeded whose condition holds; its instances get their grace, in which they may save.

    Where its agents can be told, the instance with its output finishes first: `await_finish` ends the job then.
    """
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
    if not met:
        return
    entry = draft.instances.get(_with_output(draft)) if draft.spec.finishes else None
    if entry is None or entry.state == "succeeded":
        _end(draft, met)
        return
    seen = draft.objects.get(entry.uid)
    if not entry.desired or seen is None or seen.state != "running":
        return  # it begins first, is released where it is held, or what becomes of it is decided
    draft.job = replace(
        draft.job,
        stop=StopVerdict(condition=met, at=draft.now, attempt_id=entry.attempt_id),
    )
    text = f"stop.until holds: {met}; {entry.key} is told to finish"
    draft.record_event(reasons.STOP_CONDITION_MET, text)


def await_finish(draft: Draft, failures: Sequence[Failure]) -> Sequence[Failure]:
    """End a job that was to finish, once the instance with its output has; returns the failures that are to be judged.

    Others may fail meanwhile, as they lose their rank 0: nothing is started again for them. Where that instance
    fails itself, or begins anew, the job goes on as if the condition had not held: it is looked at again.
    """
    stop, key = draft.job.stop, _with_output(draft)
    entry = draft.instances.get(key)
    if stop is None:
        return failures
    if entry is not None and entry.attempt_id == stop.attempt_id:
        if entry.state == "succeeded":
            _end(draft, stop.condition)
            return failures
        if entry.desired and all(each.key != key for each in failures):
            return ()
    draft.job = replace(draft.job, stop=None)
    return failures


def order_finish(draft: Draft) -> None:
    """Tell the instance with the output to finish: TERM, in which a script with checkpoints saves, and its grace."""
    entry = draft.instances[_with_output(draft)]
    if entry.uid and entry.state == "running":
        grace = save_grace(draft.spec, draft.job, entry.role)
        draft.actions.append(Finish(key=entry.key, uid=entry.uid, grace_seconds=grace))


def _end(draft: Draft, condition: str) -> None:
    finish(
        draft,
        "Succeeded",
        reason=reasons.STOP_CONDITION_MET,
        message=f"stop.until holds: {condition}",
    )


def _with_output(draft: Draft) -> InstanceKey:
    return InstanceKey(draft.spec.output_role, 0)


def condition_holds(
    condition: StopCondition,
    reports: Mapping[int, ProgressReport],
    *,
    over: Over,
    ranks: int,
) -> str:
    """What holds, with the values, as `loss 0.08 < 0.1` or `mean loss 0.08 < 0.1`; empty where it does not hold.

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
                f"{_name(each, over)} {value:g} {each.operator} {each.number:g}"
                for each, value in pairs
            )
    return ""


def _name(comparison: StopComparison, over: Over) -> str:
    """Return what is compared, in words: `loss`, or over all ranks `mean loss`."""
    chosen = comparison.over or over
    return comparison.metric if chosen == "rank 0" else f"{chosen} {comparison.metric}"


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

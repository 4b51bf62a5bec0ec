"""Whether a training ignores its plan, by what agents recorded of its instances. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

__all__ = ["PlanVerdict", "judge_plan_use", "wants_split"]

_AXES = ("tp", "pp", "cp", "ep")
_LIBRARY = "airflow_training.execution"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanVerdict:
    """What a record tells of a plan."""

    state: Literal["open", "settled", "ignored"]
    """`open`: a later record may tell more; `settled`: there is nothing to warn of."""
    why: str = ""


def wants_split(strategy: Mapping[str, Any]) -> bool:
    """Whether a plan asks for more than replicas, which scripts make by themselves."""
    return any(strategy.get(axis, 1) > 1 for axis in _AXES) or bool(strategy.get("zero"))


def judge_plan_use(record: Mapping[str, Any]) -> PlanVerdict:
    """Judge the newest record of an instance (`agent.environment`).

    A script that mentions variables of the plan may do with them what cannot be seen: it is not warned of.
    """
    seen = record.get("plan")
    if not isinstance(seen, Mapping):
        return PlanVerdict(state="open")
    mentions, files = seen.get("mentions"), seen.get("files")
    if seen.get("carried_out") or not isinstance(mentions, list):
        return PlanVerdict(state="settled")
    ended = record.get("on") == "exit"
    trains = isinstance(record.get("step"), int) and record["step"] > 0
    if mentions == [_LIBRARY]:
        if not ended or not trains:
            return PlanVerdict(state="open")
        why = "its script names airflow_training.execution, and ended without having called distribute"
        return PlanVerdict(state="ignored", why=why)
    if mentions:
        return PlanVerdict(state="settled")
    if not trains:
        return PlanVerdict(state="settled" if ended else "open")
    count = "file" if files == 1 else "files"
    why = (
        f"nothing in the {files} {count} of its script names a variable of the plan, or distribute"
    )
    return PlanVerdict(state="ignored", why=why)

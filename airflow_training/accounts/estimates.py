"""How long a run will take and what it will cost, said beforehand, with what that rests on. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from airflow_training.accounts.limits import amounts_of
from airflow_training.accounts.prices import PriceList
from airflow_training.accounts.refusals import number_text
from airflow_training.state.account_records import ReservedAmounts, ReservedRole

__all__ = ["CostEstimate", "estimate_cost"]

_HOUR = Decimal(3600)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """What a run is expected to use."""

    basis: Literal["plan", "history", "asked"]
    """The planner's time of a step, earlier runs of the job, or the most that was asked for."""
    hours: Decimal
    amounts: ReservedAmounts
    currency: str

    def to_json(self) -> dict[str, Any]:
        """The estimate with numbers as text."""
        amounts = {name: number_text(value) for name, value in asdict(self.amounts).items()}
        return {
            "basis": self.basis,
            "hours": number_text(self.hours),
            **amounts,
            "currency": self.currency,
        }


def estimate_cost(
    roles: Sequence[ReservedRole],
    *,
    hours: Decimal,
    prices: PriceList,
    currency: str,
    now: float,
    planned_seconds: float | None = None,
    earlier_seconds: Sequence[float] = (),
) -> CostEstimate:
    """Return the estimate from the best that is known; it never goes beyond the hours that are asked for.

    `planned_seconds`: steps times the planner's time of one. `earlier_seconds`: how long earlier runs
    of the job took, from their first instance to their last; their median counts.
    """
    basis: Literal["plan", "history", "asked"] = "asked"
    expected = hours
    if planned_seconds is not None and planned_seconds > 0:
        basis, expected = "plan", Decimal(str(planned_seconds)) / _HOUR
    elif earlier_seconds:
        basis, expected = "history", Decimal(str(statistics.median(earlier_seconds))) / _HOUR
    expected = min(expected, hours)
    return CostEstimate(
        basis=basis,
        hours=expected,
        amounts=amounts_of(roles, hours=expected, prices=prices, at=now),
        currency=currency,
    )

"""The cost model of a search, with the shipped constants or with others."""

from __future__ import annotations

from functools import partial

from airflow_training.planning import cost
from airflow_training.planning.cost.constants import TimeConstants
from airflow_training.planning.search.pricing import Pricing

__all__ = ["pricing_with"]


def pricing_with(constants: TimeConstants) -> Pricing:
    """Return the cost model that counts with these constants."""
    return Pricing(
        floors=partial(cost.floors, constants=constants),
        memory_bytes=cost.memory_bytes,
        memory_floors=cost.memory_floors,
        step_seconds=partial(cost.step_seconds, constants=constants),
        estimate=partial(cost.estimate, constants=constants),
        pass_seconds=partial(cost.pass_seconds, constants=constants),
        overheads=partial(cost.overheads, constants=constants),
        arranged=partial(cost.arrangement_costs, constants=constants),
    )
